"""A store of revision ede4381c, with something of everything, is brought to the tables of this version.

The backup was written by that revision. To restore it, the tables are made as that revision had them, and migrated.
"""

import json
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tasks_app.control import batches as control
from tasks_app.database.limit_changes import finish_changes
from tasks_app.models import AuditEntry, Batch, BatchCount, BatchPlan, GroupLimit, LimitChange, Task, Token
from taskstore_project.backup import verifying
from tests.emptying import empty

FILE = Path(__file__).with_name("ede4381c.zip")
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def store(transactional_db):
    empty()
    yield lambda: call_command("restore", str(FILE))
    call_command("migrate", verbosity=0)


def numbers():
    batches = {batch.pk: batch.told() for batch in Batch.objects.counted()}
    return {
        batch.name or "commands": (batch.state, batch.total, batch.open, batch.failed, batch.ended, batch.planned)
        for batch in batches.values()
    }


def groups(*names):
    return sorted(Task.objects.filter(group__in=names).values_list("group", flat=True))


def end(group):
    tasks = Task.objects.filter(group=group).values_list("id", flat=True)
    Task.objects.commit(owner=1, deletes=list(tasks))


def test_all_is_there(store):
    store()
    assert list(verifying.problems()) == []
    assert (Task.objects.count(), Token.objects.filter(name="importer").count()) == (41, 1)
    assert AuditEntry.objects.filter(action="purge").exists()
    assert list(GroupLimit.objects.values_list("name", "by").order_by("name")) == [
        ("films/*", "studio"), ("mail", ""), ("sms", "to"),
    ]  # fmt: skip
    call_command("migrate", verbosity=0, check_unapplied=True)


def test_batches_are_counted_by_the_present_rule(store):
    store()
    assert numbers() == {
        "open with plans": ("open", 2, 2, 0, 0, 3),
        "one has failed": ("open", 2, 1, 1, 0, 1),
        "closed": ("succeeded", 1, 0, 0, 1, 0),
        "held": ("open", 1, 1, 0, 0, 1),
        "outer": ("open", 2, 2, 0, 0, 1),
        "inner": ("open", 1, 1, 0, 0, 0),
        "deleted": ("deleted", 1, 0, 0, 1, 0),
        "one was cancelled": ("held", 0, 0, 0, 0, 1),
        "jobs of which one was cancelled": ("succeeded", 2, 0, 0, 2, 0),
        "commands": ("open", 3, 0, 1, 2, 1),
    }
    assert control.plans_of(Batch.objects.get(name="open with plans")) == [
        ("then", "2 tasks in bind, and more"), ("on failure", "1 task in alarm"),
    ]  # fmt: skip


def test_what_they_plan_is_added(store):
    store()
    end("work")
    assert groups("bind", "alarm", "print") == ["bind", "bind"]
    [added] = {task.batch for task in Task.objects.filter(group="bind")}
    assert Batch.objects.get(pk=added).parent == 0
    end("bind")
    assert groups("bind", "alarm", "print", "tell") == ["print"]
    end("work2")
    assert groups("bind2", "alarm2") == ["alarm2"]
    end("work5")
    assert groups("after5") == ["after5"]


def test_limits_look_at_each_task(store):
    store()
    assert sorted(LimitChange.objects.values_list("name", "holds")) == [("films/*", 1), ("mail", 1), ("sms", 1)]
    assert finish_changes("default")
    # One of each studio may run. The lease that the backup has ends on a day that has passed by now.
    Task.objects.claim("films/render", owner=3, limit=1)
    Task.objects.claim("films/render", owner=3, limit=4)
    leased = Task.objects.get_queryset().in_group("films/render").claimed(Task.objects.now_ms())
    assert sorted(task.labels["studio"] for task in leased) == ["a", "b"]


def test_it_can_be_taken_back_a_step_and_brought_here_again(store):
    store()
    before, plans = numbers(), kept()
    call_command("migrate", "tasks_app", "0001_initial", verbosity=0)
    former = MigrationExecutor(connection).loader.project_state(("tasks_app", "0001_initial")).apps
    texts = {batch.name: batch.then for batch in former.get_model("tasks_app", "Batch")._base_manager.all()}
    assert json.loads(texts["open with plans"])["then"]["adds"][0]["group"] == "print"
    assert texts["closed"] == ""
    call_command("migrate", verbosity=0)
    assert (numbers(), kept()) == (before, plans)
    assert BatchCount.objects.filter(gone__gt=0).count() == 0


def kept():
    return sorted(BatchPlan.objects.values_list("level", "number", "size", "words", "groups", "reach", "adds"))
