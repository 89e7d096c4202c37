"""Create the tables of release 0.1.0 on PostgreSQL and SQLite.

A released migration never changes, so its SQL is written out here instead of imported. The custom fields and the
label index are imported because Django compares them with those of the models. To change one, add a class with
another name and leave the old one as it is. In a project without migrations database/triggers.py runs the SQL.

Three things are made after every `migrate` and not here: the triggers that guard the tables and the partitions of the
next days (database/triggers.py), and the roles (access/policy.py).
"""

from django.conf import settings
from django.db import migrations, models

from tasks_app.database.group_patterns import LabelIndex
from tasks_app.database.triggers import OwnSQL
from tasks_app.models import DataField, IdField, KeyField, NameField


def numbered():
    """Return the key that Django adds to a model without one."""
    return ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))


def user():
    """Return the key of a model that has one row for each user."""
    key = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, db_constraint=False, primary_key=True, serialize=False
    )
    return ("user", key)


tasks = [
    migrations.CreateModel(
        name="Task",
        fields=[
            ("id", IdField(primary_key=True, serialize=False)),
            ("group", NameField(max_length=255)),
            ("available_at_ms", models.BigIntegerField()),
            ("owner", models.BigIntegerField()),
            ("data", DataField()),
            ("data_type", models.TextField()),
            ("error", models.TextField()),
            ("labels", models.JSONField()),
            ("priority", models.SmallIntegerField()),
            ("origin", models.BigIntegerField()),
            ("claims", models.IntegerField()),
            ("leased_since_ms", models.BigIntegerField()),
            ("created_at_ms", models.BigIntegerField()),
            ("made_at_ms", models.BigIntegerField()),
            ("made_by_commit", models.BigIntegerField()),
            ("payload", models.BigIntegerField(default=0)),
            ("unique", models.TextField(default="")),
            ("standing", models.SmallIntegerField(default=0)),
            ("batch", models.BigIntegerField(default=0)),
        ],
        options={
            "permissions": [
                ("see", "Can see groups, counts, and tasks without their data"),
                ("see_payloads", "Can see the data of tasks"),
                ("work", "Can add tasks"),
                ("operate", "Can requeue, move, edit and purge tasks, pause groups, and see the audit log"),
                ("administer", "Can administer the store's people and tokens"),
                ("commands", "Can submit shell commands"),
            ],
            "indexes": [
                models.Index(fields=["group", "priority", "available_at_ms", "id"], name="task_claim"),
                models.Index(
                    fields=["group", "available_at_ms", "id", "leased_since_ms", "standing"], name="task_listing"
                ),
                models.Index(
                    fields=["origin"], name="task_origin", condition=models.Q(("origin", models.F("id")), _negated=True)
                ),
                models.Index(
                    fields=["group", "id"], name="task_error", condition=models.Q(("error", ""), _negated=True)
                ),
                models.Index(fields=["id"], name="task_error_newest", condition=models.Q(("error", ""), _negated=True)),
                models.Index(
                    fields=["group", "standing", "id"], name="task_failed", condition=models.Q(("standing__gte", 2))
                ),
                models.Index(
                    fields=["standing", "id"], name="task_failed_newest", condition=models.Q(("standing__gte", 2))
                ),
                LabelIndex(fields=["id", "labels"], name="task_labels"),
                models.Index(
                    fields=["batch", "id"], name="task_batch", condition=models.Q(("batch", 0), _negated=True)
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Payload",
        fields=[
            ("id", IdField(primary_key=True, serialize=False)),
            ("size", models.BigIntegerField()),
            ("data", models.BinaryField()),
        ],
    ),
    migrations.CreateModel(
        name="KeptPayload",
        fields=[
            ("id", models.BigIntegerField(primary_key=True, serialize=False)),
            ("until_ms", models.BigIntegerField(db_index=True)),
            ("gone", models.SmallIntegerField()),
        ],
    ),
]

# Where the ids of tasks and the numbers of commits come from.
numbers = [
    OwnSQL(
        "postgresql",
        [
            "CREATE SEQUENCE tasks_app_ids",
            "CREATE SEQUENCE tasks_app_commits",
            "CREATE SEQUENCE tasks_app_batches",
            "CREATE SEQUENCE tasks_app_limits",  # How often limits have been changed.
            # PostgreSQL empties an unlogged table after a crash, a failover or a restore. The sequences may have
            # lost their last numbers then, so a server that finds this table empty skips ahead.
            "CREATE UNLOGGED TABLE tasks_app_log_intact (is_intact boolean NOT NULL)",
            "INSERT INTO tasks_app_log_intact VALUES (true)",
        ],
        [
            "DROP TABLE tasks_app_log_intact",
            *[f"DROP SEQUENCE tasks_app_{name}" for name in ("limits", "batches", "commits", "ids")],
        ],
    ),
    OwnSQL(
        "sqlite",
        [
            # SQLite has no sequences. Its AUTOINCREMENT numbers a single table and can't be reserved ahead.
            "CREATE TABLE tasks_app_counters (name text PRIMARY KEY, value integer NOT NULL)",
            "INSERT INTO tasks_app_counters VALUES ('ids', 0), ('commits', 0), ('batches', 0), ('limits', 0)",
        ],
        ["DROP TABLE tasks_app_counters"],
    ),
]

trail = [
    migrations.CreateModel(
        name="EndedTask",
        fields=[
            ("id", IdField(primary_key=True, serialize=False)),
            ("group", NameField(max_length=255)),
            ("available_at_ms", models.BigIntegerField()),
            ("owner", models.BigIntegerField()),
            ("error", models.TextField()),
            ("priority", models.SmallIntegerField()),
            ("origin", models.BigIntegerField()),
            ("claims", models.IntegerField()),
            ("leased_since_ms", models.BigIntegerField()),
            ("created_at_ms", models.BigIntegerField()),
            ("made_at_ms", models.BigIntegerField()),
            ("made_by_commit", models.BigIntegerField()),
            ("ended_at_ms", models.BigIntegerField()),
            ("ended_by_commit", models.BigIntegerField()),
            ("ended_by", models.BigIntegerField()),
            (
                "ending",
                models.CharField(
                    choices=[
                        ("claimed", "claimed"),
                        ("renewed", "renewed"),
                        ("changed", "changed"),
                        ("moved", "moved"),
                        ("given back", "given back"),
                        ("requeued", "requeued"),
                        ("deleted", "deleted"),
                        ("purged", "purged"),
                        ("cancelled", "cancelled"),
                    ],
                    max_length=20,
                ),
            ),
            ("successor", models.BigIntegerField(null=True)),
            ("operator", models.TextField()),
            ("reason", models.TextField()),
        ],
    ),
    # Deleting old rows one by one is too slow for a billion of them. On PostgreSQL each day has a partition, which is
    # dropped as a whole. The table that Django made becomes the default partition, for rows of days without one.
    OwnSQL(
        "postgresql",
        [
            "ALTER TABLE tasks_app_endedtask DROP CONSTRAINT tasks_app_endedtask_pkey",
            "ALTER TABLE tasks_app_endedtask RENAME TO tasks_app_endedtask_default",
            "CREATE TABLE tasks_app_endedtask (LIKE tasks_app_endedtask_default) PARTITION BY RANGE (ended_at_ms)",
            # PostgreSQL requires the partition key in the primary key. An id still ends only once, because the
            # statement that adds its row here also deletes its task.
            "ALTER TABLE tasks_app_endedtask ADD PRIMARY KEY (id, ended_at_ms)",
            # Finds the old rows, and those of a day that is about to get a partition. Only the default partition
            # needs it: the others hold one day each.
            """
            CREATE INDEX tasks_app_endedtask_default_end
            ON tasks_app_endedtask_default (ended_at_ms)
            """,
            # The part of `endedtask_chain` below that is on this partition. Made here, so that it has this name.
            """
            CREATE INDEX tasks_app_endedtask_default_chain
            ON tasks_app_endedtask_default (origin, id)
            """,
            "ALTER TABLE tasks_app_endedtask ATTACH PARTITION tasks_app_endedtask_default DEFAULT",
        ],
    ),
    # Not in the options of the model: it has to be an index of the whole table, not of the default partition alone.
    migrations.AddIndex(model_name="endedtask", index=models.Index(fields=["origin", "id"], name="endedtask_chain")),
]

counts = [
    migrations.CreateModel(
        name="CountDelta",
        fields=[
            numbered(),
            ("group", NameField(max_length=255)),
            ("minute", models.BigIntegerField()),
            ("tasks", models.IntegerField()),
            ("leases", models.IntegerField()),
            ("errors", models.IntegerField()),
            ("finished", models.IntegerField()),
            ("retrying", models.IntegerField()),
            ("failed", models.IntegerField()),
            ("entered", models.IntegerField()),
            ("left", models.IntegerField()),
            ("failures", models.IntegerField()),
            ("claimed", models.IntegerField()),
            ("waits", models.TextField()),
            ("runs", models.TextField()),
            ("done", models.TextField()),
        ],
    ),
    migrations.CreateModel(
        name="GroupTotal",
        fields=[
            ("group", NameField(max_length=255, primary_key=True, serialize=False)),
            ("tasks", models.BigIntegerField()),
            ("leases", models.BigIntegerField()),
            ("errors", models.BigIntegerField()),
            ("finished", models.BigIntegerField()),
            ("retrying", models.BigIntegerField()),
            ("failed", models.BigIntegerField()),
        ],
    ),
    migrations.CreateModel(
        name="Rate",
        fields=[
            numbered(),
            ("group", NameField(max_length=255)),
            ("minutes", models.SmallIntegerField()),
            ("minute", models.BigIntegerField()),
            ("entered", models.BigIntegerField()),
            ("left", models.BigIntegerField()),
            ("failures", models.BigIntegerField()),
            ("claimed", models.BigIntegerField()),
            ("tasks", models.BigIntegerField()),
            ("waits", models.TextField()),
            ("runs", models.TextField()),
        ],
        options={
            "indexes": [models.Index(fields=["minutes", "minute"], name="rate_age")],
            "constraints": [models.UniqueConstraint(fields=("group", "minutes", "minute"), name="rate_of_group")],
        },
    ),
    migrations.CreateModel(
        name="Level",
        fields=[
            ("minute", models.BigIntegerField(primary_key=True, serialize=False)),
            ("ready", models.BigIntegerField()),
            ("claimed", models.BigIntegerField()),
            ("expired", models.BigIntegerField()),
            ("scheduled", models.BigIntegerField()),
            ("retrying", models.BigIntegerField()),
            ("failed", models.BigIntegerField()),
            ("workers", models.BigIntegerField()),
        ],
    ),
    migrations.CreateModel(
        name="WorkDone",
        fields=[
            numbered(),
            ("minute", models.BigIntegerField()),
            ("client", models.BigIntegerField()),
            ("tasks", models.BigIntegerField()),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("minute", "client"), name="work_of_client")]},
    ),
]

limits = [
    migrations.CreateModel(
        name="GroupLimit",
        fields=[
            ("name", NameField(max_length=255, primary_key=True, serialize=False)),
            ("running", models.IntegerField(null=True)),
            ("claims", models.IntegerField(null=True)),
            ("per_ms", models.BigIntegerField(null=True)),
            ("by", models.TextField(default="")),
            ("set_by", models.CharField(max_length=150)),
            ("at", models.DateTimeField(auto_now=True)),
        ],
    ),
    migrations.CreateModel(
        name="LimitedTask",
        fields=[
            ("id", IdField(primary_key=True, serialize=False)),
            ("group", NameField(max_length=255)),
            ("value", KeyField()),
            ("priority", models.SmallIntegerField()),
            ("available_at_ms", models.BigIntegerField()),
            ("leased", models.SmallIntegerField()),
        ],
        options={
            "indexes": [
                models.Index(
                    fields=["group", "leased", "value", "-priority", "available_at_ms", "id"], name="limited_tasks"
                )
            ]
        },
    ),
    migrations.CreateModel(
        name="RecentClaim",
        fields=[
            numbered(),
            ("group", NameField(max_length=255)),
            ("value", KeyField()),
            ("at_ms", models.BigIntegerField()),
            ("claims", models.BigIntegerField()),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("group", "value", "at_ms"), name="claims_of_value")]},
    ),
]

batches = [
    migrations.CreateModel(
        name="Batch",
        fields=[
            ("id", IdField(primary_key=True, serialize=False)),
            ("name", models.CharField(max_length=255)),
            ("mark", models.CharField(max_length=400)),
            ("parent", models.BigIntegerField()),
            ("hold", models.SmallIntegerField()),
            ("failed_ends", models.SmallIntegerField()),
            ("refuses", models.SmallIntegerField(default=0)),
            ("has_failed", models.SmallIntegerField(default=0)),
            ("children", models.BigIntegerField(default=0)),
            ("created_at_ms", models.BigIntegerField()),
            ("closed_at_ms", models.BigIntegerField(default=0)),
            ("then", models.TextField(default="")),
            ("on_failure", models.TextField(default="")),
        ],
        options={
            "verbose_name_plural": "batches",
            "indexes": [
                models.Index(fields=["mark"], name="batch_mark"),
                models.Index(
                    fields=["parent", "id"], name="batch_parent", condition=models.Q(("parent", 0), _negated=True)
                ),
                models.Index(fields=["closed_at_ms", "id"], name="batch_closed"),
            ],
        },
    ),
    migrations.CreateModel(
        name="BatchCount",
        fields=[
            numbered(),
            ("batch", models.BigIntegerField()),
            ("part", models.SmallIntegerField()),
            ("open", models.BigIntegerField()),
            ("failed", models.BigIntegerField()),
            ("ended", models.BigIntegerField()),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("batch", "part"), name="count_of_batch")]},
    ),
    migrations.CreateModel(
        name="BatchGroup",
        fields=[numbered(), ("batch", models.BigIntegerField()), ("group", NameField(max_length=255))],
        options={"constraints": [models.UniqueConstraint(fields=("batch", "group"), name="group_of_batch")]},
    ),
]

# Claims slow down when dead rows collect at the head of a group, and rows of counts change twice a second. By default
# PostgreSQL vacuums when a share of a table is dead, which is too late for a large one. So it starts at a number.
autovacuum = [
    OwnSQL(
        "postgresql",
        [
            f"""
            ALTER TABLE {table} SET (
                autovacuum_vacuum_scale_factor = 0,
                autovacuum_vacuum_threshold = 5000,
                autovacuum_vacuum_cost_delay = 0
            )
            """
            for table in (
                "tasks_app_task",
                "tasks_app_countdelta",
                "tasks_app_grouptotal",
                "tasks_app_rate",
                "tasks_app_workdone",
                "tasks_app_limitedtask",
                "tasks_app_recentclaim",
                "tasks_app_batchcount",
            )
        ],
    )
]

workers = [
    migrations.CreateModel(
        name="Client",
        fields=[
            ("id", models.BigIntegerField(primary_key=True, serialize=False)),
            ("name", models.CharField(max_length=255)),
            ("host", models.CharField(max_length=255)),
            ("pid", models.BigIntegerField(null=True)),
            ("groups", models.JSONField()),
            ("version", models.CharField(max_length=255)),
            ("info", models.TextField()),
            ("seen_at_ms", models.BigIntegerField()),
            ("token", models.BigIntegerField(null=True)),
        ],
        options={"indexes": [models.Index(fields=["seen_at_ms"], name="client_seen")]},
    ),
    migrations.CreateModel(
        name="UniqueKey",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "group", "key", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("group", NameField(max_length=255)),
            ("key", NameField(max_length=255)),
            ("origin", models.BigIntegerField()),
            ("until_ms", models.BigIntegerField()),
            ("ended", models.BigIntegerField()),
            ("ending", models.TextField()),
            ("ended_in", NameField(max_length=255)),
        ],
        options={
            "indexes": [
                models.Index(fields=["origin"], name="key_of_chain"),
                models.Index(fields=["until_ms"], name="key_kept", condition=models.Q(("ended", 0), _negated=True)),
            ]
        },
    ),
    migrations.CreateModel(
        name="CancelledTask",
        fields=[
            ("id", IdField(primary_key=True, serialize=False)),
            ("owner", models.BigIntegerField()),
            ("at_ms", models.BigIntegerField(db_index=True)),
        ],
    ),
    migrations.CreateModel(
        name="KeptAnswer",
        fields=[
            ("key", KeyField(primary_key=True, serialize=False)),
            ("digest", models.CharField(max_length=64)),
            ("at_ms", models.BigIntegerField(db_index=True)),
            ("answer", models.TextField()),
            ("ids", models.TextField()),
        ],
    ),
    migrations.CreateModel(
        name="ProgressReport",
        fields=[
            ("origin", models.BigIntegerField(primary_key=True, serialize=False)),
            ("claims", models.IntegerField()),
            ("done", models.FloatField()),
            ("text", models.CharField(max_length=255)),
            ("at_ms", models.BigIntegerField()),
        ],
    ),
    migrations.CreateModel(
        name="PausedGroup",
        fields=[
            ("group", NameField(max_length=255, primary_key=True, serialize=False)),
            ("by", models.CharField(max_length=150)),
            ("reason", models.TextField()),
            ("at", models.DateTimeField(auto_now_add=True)),
        ],
    ),
]

access = [
    migrations.CreateModel(
        name="Token",
        fields=[
            numbered(),
            ("name", models.CharField(max_length=100)),
            ("hash", models.CharField(editable=False, max_length=64, unique=True)),
            (
                "scope",
                models.CharField(
                    choices=[("read", "Read"), ("work", "Work"), ("operate", "Operate"), ("commands", "Commands")],
                    max_length=10,
                ),
            ),
            ("groups", models.JSONField(blank=True, default=list)),
            ("clients", models.JSONField(blank=True, default=list)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("expires_at", models.DateTimeField(blank=True, null=True)),
            ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ("revoked_at", models.DateTimeField(blank=True, null=True)),
        ],
    ),
    migrations.CreateModel(name="OneTimePassword", fields=[user()]),
    migrations.CreateModel(name="SessionGeneration", fields=[user(), ("number", models.BigIntegerField())]),
    migrations.CreateModel(
        name="EndedSession",
        fields=[
            ("id", models.CharField(max_length=32, primary_key=True, serialize=False)),
            ("until_ms", models.BigIntegerField(db_index=True)),
        ],
    ),
    migrations.CreateModel(
        name="SavedSearch",
        fields=[
            numbered(),
            (
                "user",
                models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, db_constraint=False, related_name="+"),
            ),
            ("name", models.CharField(max_length=100)),
            ("q", models.TextField()),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("user", "name"), name="saved_search_name")]},
    ),
]

operating = [
    migrations.CreateModel(
        name="BulkOperation",
        fields=[
            numbered(),
            ("verb", models.CharField(max_length=10)),
            ("parameters", models.JSONField(default=dict)),
            ("selection", models.JSONField(default=dict)),
            ("in_words", models.TextField()),
            ("group", NameField(max_length=255)),
            ("expected", models.BigIntegerField()),
            ("undoes", models.BigIntegerField(db_index=True, null=True)),
            ("by", models.CharField(max_length=150)),
            ("reason", models.TextField()),
            ("began_at_ms", models.BigIntegerField()),
            (
                "state",
                models.CharField(
                    choices=[("running", "Running"), ("done", "Done"), ("cancelled", "Cancelled")],
                    default="running",
                    max_length=10,
                ),
            ),
            ("place", models.TextField()),
            ("done", models.BigIntegerField(default=0)),
            ("skipped", models.BigIntegerField(default=0)),
            ("failed", models.BigIntegerField(default=0)),
            ("gone", models.BigIntegerField(default=0)),
            ("cancelled_by", models.CharField(max_length=150)),
            ("ended_at_ms", models.BigIntegerField(null=True)),
            ("held_by", models.CharField(max_length=40)),
            ("held_until_ms", models.BigIntegerField(default=0)),
        ],
        options={"indexes": [models.Index(fields=["state", "ended_at_ms"], name="bulkoperation_state")]},
    ),
    migrations.CreateModel(
        name="BulkItem",
        fields=[
            numbered(),
            ("operation", models.BigIntegerField()),
            ("origin", models.BigIntegerField()),
            ("task", models.BigIntegerField()),
            (
                "outcome",
                models.CharField(
                    choices=[("done", "Done"), ("skipped", "Skipped"), ("failed", "Failed")], max_length=10
                ),
            ),
            ("why", models.TextField()),
            ("commit", models.BigIntegerField(default=0)),
            ("group", NameField(max_length=255)),
            ("available_at_ms", models.BigIntegerField(default=0)),
            ("leased_since_ms", models.BigIntegerField(default=0)),
            ("error", models.TextField()),
            ("labels", models.JSONField(default=dict)),
            ("priority", models.SmallIntegerField(default=0)),
            ("claims", models.IntegerField(default=0)),
            ("created_at_ms", models.BigIntegerField(default=0)),
            ("data", models.BinaryField(default=b"")),
            ("data_type", models.TextField()),
            ("unique", models.TextField(default="")),
            ("batch", models.BigIntegerField(default=0)),
            ("unique_group", models.TextField(default="")),
        ],
        options={"constraints": [models.UniqueConstraint(fields=("operation", "origin"), name="item_of_operation")]},
    ),
    migrations.CreateModel(
        name="AuditEntry",
        fields=[
            numbered(),
            ("at", models.DateTimeField(auto_now_add=True)),
            ("actor", models.CharField(max_length=150)),
            ("action", models.CharField(max_length=20)),
            ("group", NameField(max_length=255)),
            ("selection", models.TextField()),
            ("reason", models.TextField()),
            ("done", models.IntegerField()),
            ("skipped", models.IntegerField()),
            ("details", models.JSONField(default=dict)),
            ("duration_ms", models.IntegerField()),
        ],
        options={
            "verbose_name_plural": "audit entries",
            "indexes": [
                models.Index(fields=["-at", "-id"], name="audit_newest"),
                models.Index(fields=["actor", "-at", "-id"], name="audit_actor"),
                models.Index(fields=["action", "-at", "-id"], name="audit_action"),
                models.Index(fields=["group", "-at", "-id"], name="audit_group"),
            ],
        },
    ),
]


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("auth", "0002_alter_permission_name_max_length"),  # The names of our permissions are longer than before.
    ]
    operations = [*tasks, *numbers, *trail, *counts, *limits, *batches, *autovacuum, *workers, *access, *operating]
