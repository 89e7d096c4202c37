"""The project's fixtures, its `flush` and its tests, with and without migrations."""

import pytest
from django.db import connection

pytestmark = [pytest.mark.foreign, pytest.mark.django_db]

FILL = """
from people.models import Person
from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.models import Task
from taskstore.types.tasks import NewTask

for data in (b"short", b"long" * 20_000):
    Task.objects.commit(owner=1, adds=[NewTask(group="mail", data=data, labels={"to": "Ann"})])
Task.objects.claim("mail", owner=2)
Person.objects.create_superuser("root@example.org", "a")
audit.record(Actor("root@example.org"), "purge", group="mail", selection="all", done=1)
"""

# What is in the store, and whether it goes on as if nothing had been.
LOOK = """
from django.db import transaction
from people.models import Person
from tasks_app.models import AuditEntry, EndedTask, Task
from taskstore.types.tasks import NewTask

ids = sorted(Task.objects.values_list("id", flat=True))
before = [*ids, *EndedTask.objects.values_list("id", flat=True)]
seen = {
    "data": sorted(len(task.data) for task in Task.objects.find(ids)),
    "ended": EndedTask.objects.filter(group="mail").count(),
    "audit": [entry.actor for entry in AuditEntry.objects.all()],
    "people": [person.email for person in Person.objects.all()],
}
try:
    with transaction.atomic():
        [undone] = Task.objects.commit(owner=1, adds=[NewTask(group="letters")])
        1 / 0
except ZeroDivisionError:
    pass
[added] = Task.objects.commit(owner=1, adds=[NewTask(group="letters")])
assert added.id > undone.id > max(before, default=0)
Task.objects.commit(owner=1, deletes=[added.id])
print(json.dumps(seen))
"""

# The statements that the database takes of those that it has to refuse.
REFUSED = """
from django.db import IntegrityError, connection, transaction
from tasks_app.models import AuditEntry, Payload

tables = [f"tasks_app_{name}" for name in ("task", "payload", "endedtask", "auditentry")]
statements = [f"UPDATE {table} SET id = id" for table in tables]
statements.append("DELETE FROM tasks_app_auditentry")
if connection.vendor == "sqlite":
    statements += [f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}" for table in tables]
else:
    statements.append("TRUNCATE tasks_app_auditentry")
taken = []
for sql in statements:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
            taken.append(sql)
    except IntegrityError as error:
        assert "immutable" in str(error) or "kept for 400 days" in str(error), error
for model in (AuditEntry, Payload):
    model.objects.bulk_create(model.objects.all(), ignore_conflicts=True)
print(json.dumps(taken))
"""

COUNTS = """
from tasks_app.models import GroupTotal
from tasks_app.writer.totals import fold_here

fold_here("default")
print(json.dumps(sorted(GroupTotal.objects.values_list("group", "tasks", "leases"))))
"""

SCHEMA = {
    "sqlite": """
        SELECT name, CASE type WHEN 'table' THEN '' ELSE sql END FROM sqlite_master WHERE tbl_name LIKE 'tasks_app%'
        UNION ALL SELECT made.name, printf('%s %s %d %d', its.name, its.type, its."notnull", its.pk)
        FROM sqlite_master AS made JOIN pragma_table_info(made.name) AS its
        WHERE made.type = 'table' AND made.name LIKE 'tasks_app%'
        ORDER BY 1, 2
    """,
    "postgresql": """
        SELECT indexname, indexdef FROM pg_indexes WHERE indexname ~ 'task|client|rate|level|work|bulk|item|key|audit'
        UNION ALL SELECT relname, concat(relkind, relpersistence, reloptions)
        FROM pg_class WHERE relname LIKE 'tasks_app%'
        UNION ALL SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        ORDER BY 1, 2
    """,
}

LIST = """
from django.db import connection

with connection.cursor() as cursor:
    cursor.execute(%r)
    print(json.dumps(sorted(cursor.fetchall())))
"""


@pytest.fixture(scope="module")
def copy(made):
    """Another database of the project, made without migrations."""
    variables = {"ANOTHER": "_copy", "NO_MIGRATIONS": "yes"}
    made.manage("migrate", "--run-syncdb", "--verbosity", "0", **variables)
    return variables


def test_without_migrations_the_same_is_made(project, copy):
    list_all = LIST % SCHEMA[connection.vendor]
    ours = project.run(list_all)
    assert project.run(list_all, **copy) == ours
    assert len(ours) > 50


def test_fixtures_and_flush(project, copy):
    project.run(FILL)
    without = [word for name in ("contenttypes", "auth.permission") for word in ("--exclude", name)]
    project.manage("dumpdata", *without, "--output", "all.json")
    project.manage("loaddata", "all.json", **copy)
    assert project.run(COUNTS, **copy) == [["mail", 2, 1]]
    project.manage("loaddata", "all.json", **copy)  # What is there already stays as it is.
    assert project.run(COUNTS, **copy) == [["mail", 2, 1]]
    there = {"data": [5, 80_000], "ended": 1, "audit": ["root@example.org"], "people": ["root@example.org"]}
    assert project.run(LOOK, **copy) == there
    assert project.run(REFUSED, **copy) == []

    refusal = "Nothing was deleted: entries of the audit log are kept for 400 days. To delete them all the same, run"
    project.call("manage.py", "flush", "--noinput", complaint=refusal, **copy)
    project.call("manage.py", "flush", typed="no\n", **copy)
    assert project.run(LOOK, **copy) == there
    told = project.call("manage.py", "flush", typed="yes\n", **copy).stdout
    assert "The audit log will be emptied, too." in told
    assert project.run(LOOK, **copy) == {"data": [], "ended": 0, "audit": [], "people": []}
    project.run(FILL, **copy)
    assert project.run(REFUSED, **copy) == []


def test_the_projects_tests_leave_nothing_behind(project):
    told = project.call("manage.py", "test")
    assert "Ran 4 tests" in told.stderr


def test_nor_without_migrations(project):
    told = project.call("-m", "pytest", "--nomigrations", "-p", "no:cacheprovider", "people/tests.py")
    assert "4 passed" in told.stdout
