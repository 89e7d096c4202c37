"""Keep what batches plan as rows, count what has gone, and note which values of limits can be claimed.

It brings stores of revision ede4381c here. Those made between that revision and this migration have other tables.
"""

import json
from collections import Counter, defaultdict

from django.db import migrations, models

from tasks_app.database.triggers import OwnSQL
from tasks_app.models import KeyField, NameField

NO_PERMISSIONS: dict[str, object] = {"default_permissions": ()}
ACTIONS = [
    ("see", "Can see groups, counts, and tasks without their data"),
    ("see_payloads", "Can see the data of tasks"),
    ("work", "Can add tasks"),
    ("operate", "Can requeue, move, edit and purge tasks, pause groups, and see the audit log"),
    ("administer", "Can administer the store's people and tokens"),
    ("commands", "Can submit shell commands"),
]
OTHER_OPTIONS: dict[str, dict[str, object]] = {
    "task": {"permissions": ACTIONS},
    "batch": {"verbose_name_plural": "batches"},
    "auditentry": {"verbose_name_plural": "audit entries"},
}
FIRST_MODELS = (
    *("task", "payload", "keptpayload", "endedtask", "countdelta", "grouptotal", "rate", "level", "workdone"),
    *("grouplimit", "limitedtask", "recentclaim", "batch", "batchcount", "batchgroup", "client", "uniquekey"),
    *("cancelledtask", "keptanswer", "progressreport", "pausedgroup", "token", "onetimepassword"),
    *("sessiongeneration", "endedsession", "savedsearch", "bulkoperation", "bulkitem", "auditentry"),
)
LETTERS = {"then": "t", "on_failure": "f"}
OPEN, FAILED, ENDED, GONE, NO_MEMBER = range(5)
OWED = 2
FINISHED_STANDING, FAILED_STANDING = 1, 3


def numbered():
    """Return the key that Django adds to a model without one."""
    return ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))


def convert(apps, schema_editor):
    """Keep plans as rows, count the members of open batches by the present rule, and have limits look at each task."""
    using = schema_editor.connection.alias
    of = {model.__name__: model._base_manager.using(using) for model in apps.get_models()}
    of["Batch"].update(root=models.F("id"))
    for batch in of["Batch"].exclude(then="", on_failure="").iterator():
        is_over = batch.closed_at_ms and not batch.refuses
        numbers = {}
        for name, letter in LETTERS.items():
            plan = json.loads(getattr(batch, name) or "null")
            if is_over or (name == "on_failure" and batch.has_failed):
                plan = None
            rows = list(levels(plan, letter)) if plan else []
            for path, row in rows:
                of["BatchPlan"].create(root=batch.id, level=f"{batch.id}/{path}", **row)
            numbers[name] = rows[0][1]["number"] if rows else 0
        of["Batch"].filter(pk=batch.pk).update(**numbers)
    of["Batch"].filter(then="").update(then="0")
    of["Batch"].filter(on_failure="").update(on_failure="0")
    count_members(of)
    for limit in of["GroupLimit"].all():  # A server does what is left to do.
        of["LimitChange"].create(name=limit.name, holds=1)
    for cancelled in of["CancelledTask"].all():
        ended = of["EndedTask"].filter(id=cancelled.id).first()
        of["CancelledTask"].filter(id=cancelled.id).update(group=ended.group if ended else "")


def levels(plan, path):
    """Yield the levels of a plan with their paths, from the first one on."""
    adds = [{name: value for name, value in add.items() if value} for add in plan["adds"]]
    text = json.dumps(adds, ensure_ascii=False, separators=(",", ":"))
    own = sorted({add["group"] for add in adds})
    below = [
        level for name, letter in LETTERS.items() if plan.get(name) for level in levels(plan[name], f"{path}{letter}")
    ]
    every = sorted({*own, *(group for _, row in below for group in json.loads(row["reach"]))})
    words = f"{len(adds)} {'task' if len(adds) == 1 else 'tasks'} in {', '.join(own)}"
    row = {"holder": "", "number": len(adds), "size": len(text.encode()), "words": words, "adds": text}
    yield path, {**row, "groups": json.dumps(every), "reach": json.dumps(own)}
    yield from below


def count_members(of):
    """Count the members of open batches anew. What was purged counts as succeeded: nothing tells it any more."""
    is_open = of["Batch"].filter(closed_at_ms=0).values("id")
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for batch, group, standing, labels in (
        of["Task"].filter(batch__in=is_open).values_list("batch", "group", "standing", "labels").iterator()
    ):
        number = labels.get("commands", "") if group.startswith("commands/") else ""
        found[batch][phase(group, standing)] += int(number) if number.isdecimal() else 1
    for counts in of["BatchCount"].filter(batch__in=is_open).values("batch").annotate(all=models.Sum("ended")):
        batch, here = counts["batch"], found[counts["batch"]]
        ended = max(0, counts["all"] - here[GONE] - here[NO_MEMBER])
        groups = of["BatchGroup"].filter(batch=batch).values_list("group", flat=True)
        if all(group.startswith("commands/") for group in groups):
            ended = here[ENDED]  # Each failed run was counted, too.
        of["BatchCount"].filter(batch=batch).delete()
        if here[GONE]:  # Its first failure is told now, by a server.
            of["Batch"].filter(pk=batch, has_failed=0).exclude(on_failure="0").update(has_failed=OWED)
        of["BatchCount"].create(batch=batch, part=0, open=here[OPEN], failed=here[FAILED], ended=ended, gone=here[GONE])


def phase(group, standing):
    end = group.rpartition("/")[2]
    if standing == FINISHED_STANDING:
        return GONE if end == "cancelled" else NO_MEMBER if end == "failed_archive" else ENDED
    return FAILED if standing == FAILED_STANDING else OPEN


def convert_back(apps, schema_editor):
    """Make texts of plans. Steps and batches within are lost, and what has gone has ended, as that revision has it."""
    batches, plans = (
        apps.get_model("tasks_app", name)._base_manager.using(schema_editor.connection.alias)
        for name in ("Batch", "BatchPlan")
    )
    counts = apps.get_model("tasks_app", "BatchCount")._base_manager.using(schema_editor.connection.alias)
    counts.update(ended=models.F("ended") + models.F("gone"))
    batches.filter(has_failed=OWED).update(has_failed=0)
    for batch in batches.iterator():
        texts = dict(plans.filter(root=batch.root).values_list("level", "adds"))
        here = f"{batch.root}/{batch.path}"
        parts = {name: plan_below(f"{here}{letter}", texts) for name, letter in LETTERS.items()}
        batches.filter(pk=batch.pk).update(**{name: json.dumps(plan) if plan else "" for name, plan in parts.items()})


def plan_below(level, texts):
    if level not in texts:
        return None
    adds = json.loads(texts[level])
    below = {name: plan_below(f"{level}{letter}", texts) for name, letter in LETTERS.items()}
    return {"adds": adds if isinstance(adds, list) else adds["adds"], **below}


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="LimitChange",
            fields=[numbered(), ("name", NameField(max_length=255)), ("holds", models.SmallIntegerField())],
            options=NO_PERMISSIONS,
        ),
        migrations.CreateModel(
            name="LimitedValue",
            fields=[
                numbered(),
                ("group", NameField(max_length=255)),
                ("value", KeyField()),
                ("from_ms", models.BigIntegerField()),
            ],
            options={
                **NO_PERMISSIONS,
                "indexes": [models.Index(fields=["group", "from_ms", "value", "id"], name="limited_values")],
            },
        ),
        migrations.CreateModel(
            name="BatchPlan",
            fields=[
                numbered(),
                ("root", models.BigIntegerField()),
                ("level", NameField(max_length=530)),
                ("holder", models.CharField(max_length=150)),
                ("number", models.IntegerField()),
                ("size", models.BigIntegerField()),
                ("words", models.TextField()),
                ("groups", models.TextField()),
                ("reach", models.TextField()),
                ("adds", models.TextField()),
            ],
            options={**NO_PERMISSIONS, "indexes": [models.Index(fields=["level"], name="level_of_plan")]},
        ),
        migrations.CreateModel(
            name="RightsHolder",
            fields=[
                ("name", models.CharField(max_length=150, primary_key=True, serialize=False)),
                ("groups", models.TextField()),
                ("commands", models.SmallIntegerField()),
                ("lost", models.TextField(default="")),
            ],
            options=NO_PERMISSIONS,
        ),
        migrations.AddField("recentclaim", "again_ms", models.BigIntegerField(default=0), preserve_default=False),
        migrations.AddIndex("recentclaim", models.Index(fields=["group", "at_ms"], name="claims_of_group")),
        migrations.AddField("cancelledtask", "group", NameField(max_length=255, default=""), preserve_default=False),
        migrations.AddField("batchcount", "gone", models.BigIntegerField(default=0)),
        migrations.AddField("batch", "failed_children", models.BigIntegerField(default=0)),
        migrations.AddField("batch", "steps", models.IntegerField(default=0)),
        migrations.AddField("batch", "problem", models.TextField(default="")),
        migrations.AddField("batch", "root", models.BigIntegerField(default=0), preserve_default=False),
        migrations.AddField("batch", "path", models.CharField(default="", max_length=500), preserve_default=False),
        migrations.AddIndex("batch", models.Index(fields=["root"], name="batch_root")),
        migrations.RunPython(convert, convert_back),
        migrations.AlterField("batch", "then", models.IntegerField(default=0)),
        migrations.AlterField("batch", "on_failure", models.IntegerField(default=0)),
        OwnSQL(
            "postgresql",
            [
                """
                ALTER TABLE tasks_app_limitedvalue SET (
                    autovacuum_vacuum_scale_factor = 0,
                    autovacuum_vacuum_threshold = 5000,
                    autovacuum_vacuum_cost_delay = 0
                )
                """
            ],
        ),
        *(
            migrations.AlterModelOptions(name, {**NO_PERMISSIONS, **OTHER_OPTIONS.get(name, {})})
            for name in FIRST_MODELS
        ),
    ]
