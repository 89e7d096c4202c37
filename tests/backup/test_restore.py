"""`manage.py backup` and `restore`: all of the store is there again, in an empty store, or nothing is."""

import json
import re
import zipfile

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction

from tasks_app.access import audit, tokens
from tasks_app.access.people import make_first_admin
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, KeptAnswer, PausedGroup, SavedSearch, Scope, Task, Token
from taskstore.types.tasks import Change, NewTask
from taskstore_project.backup.file import MANIFEST, opened
from taskstore_project.backup.tables import TABLES
from tests.behaviour.people import ANN, BOB
from tests.emptying import empty
from tests.people import make_user

LARGE = bytes(range(256)) * 1_000
# Of all others each row is as it was.
CHANGED = {"tasks_app_token", "tasks_app_auditentry"}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "store.zip"


@pytest.fixture
def filled(transactional_db):
    """A store with something of everything."""
    adds = [
        NewTask(group="mail", data=b"1", labels={"für": "Bob", "a": 'b"c'}, priority=-7),
        NewTask(group="a/b \u202e", data=LARGE, data_type="type.googleapis.com/Letter"),
        NewTask(group="mail", data=b"\x00\xff", error="no\nluck", timespec_ms=4_102_444_800_000, unique="Bob"),
        NewTask(group="reports"),
    ]
    mail, _, _, report = Task.objects.commit(owner=ANN, adds=adds)
    Task.objects.claim("a/b \u202e", owner=BOB, duration_ms=60_000)
    Task.objects.commit(owner=ANN, updates=[Change(id=mail.id, data=b"2", labels={"für": "Bob"})], deletes=[report.id])
    user = make_user("ann", "operator", "see payloads")
    SavedSearch.objects.create(user=user, name="mine", q="group:mail")
    pauses.pause("reports", Actor("ann", reason="Sunday"))
    KeptAnswer.objects.create(key="k", digest="d" * 64, at_ms=1, answer="{}", ids="1")


def restored(command, file):
    empty()
    code, told = command("restore", file)
    assert code == 0, told
    return told


def test_all_of_it_is_there_again(command, filled, file, tmp_path):
    token, secret = tokens.create("ann", Scope.WORK, ["mail", "pay/*"], clients=[17])
    assert command("backup", file) == (0, f"3 tasks, ids up to {Task.objects.newest_id()}, are in {file}\n")
    before = list(Task.objects.order_by("id").values())
    restored(command, file)
    assert list(Task.objects.order_by("id").values()) == before
    assert bytes(Task.objects.get(group="a/b \u202e").data) == LARGE
    assert set(User.objects.get(username="ann").groups.values_list("name", flat=True)) == {"operator", "see payloads"}
    assert tokens.valid(secret) == token
    assert Token.objects.get().groups == ["mail", "pay/*"]
    assert Token.objects.get().clients == [17]
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["pause", "restore"]
    again = tmp_path / "again.zip"
    command("backup", again)
    assert rows_in(again) == rows_in(file)
    assert command("verify") == (0, "no problems found\n")


def rows_in(file):
    with opened(file) as archive:
        of_tables = {t.name: sorted(archive.rows(t.name, t.kinds), key=str) for t in TABLES if t.name not in CHANGED}
        return of_tables | {"roles": list(archive.rows("auth_user_groups", [int, str]))}


def test_no_id_is_given_out_again(command, filled, file):
    command("backup", file)
    # What happens after the backup is gone with the store, but not from the memory of clients.
    [later] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    restored(command, file)
    [new] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    assert later.id + 2**32 <= new.id < 2**53
    assert new.made_by_commit > later.made_by_commit + 2**31


def rewrite(file, change):
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[MANIFEST] = json.dumps(change(json.loads(parts[MANIFEST]))).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def test_what_is_added_to_any_table_afterwards_gets_a_number_of_its_own(command, filled, file):
    command("backup", file)
    restored(command, file)
    newest = AuditEntry.objects.latest("id")
    assert audit.record(Actor("ann"), "pause", selection="group", done=1).id > newest.id
    assert make_user("bob").id > User.objects.get(username="ann").id


def test_a_token_that_a_server_had_opens_nothing(command, file):
    _, secret = tokens.create_for_node("web-1", Scope.OPERATE)
    command("backup", file)
    restored(command, file)
    assert tokens.valid(secret) is None


def test_it_takes_the_place_of_the_first_admin_whom_nobody_knows(command, filled, file):
    command("backup", file)
    empty()
    make_first_admin()
    assert command("restore", file)[0] == 0
    assert [user.username for user in User.objects.all()] == ["ann"]


def test_what_the_start_of_a_server_wrote_down_makes_way(command, filled, file):
    audit.record(Actor("ann"), "pause", selection="group", done=1)
    command("backup", file)
    empty()
    for node in ("web-1:8048", "web-2:8048"):
        tokens.create_for_node(node, Scope.OPERATE)
    assert command("restore", file)[0] == 0
    entries = AuditEntry.objects.order_by("id")
    assert [entry.action for entry in entries] == ["pause", "pause", "restore"]
    with pytest.raises(DatabaseError, match="are kept for"), transaction.atomic():
        entries[0].delete()


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (lambda: Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")]), "tasks: 1"),
        (lambda: tokens.create("ann", Scope.READ), "tokens: 1"),
        (lambda: make_user("bob"), "people: 1"),
        (lambda: audit.record(Actor("ann"), "pause", selection="group", done=1), "entries of the audit log: 1"),
        (lambda: PausedGroup.objects.create(group="mail", by="ann"), "paused groups: 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_store_that_holds_anything_is_left_alone(command, refusal, filled, file, held, words):
    command("backup", file)
    empty()
    held()
    before = contents()
    assert f"is not empty ({words}): restore into a new --data directory or database" in refusal("restore", file)
    assert contents() == before


def contents():
    return {table.name: list(table.model._base_manager.values_list().order_by("pk")) for table in TABLES}


def test_nothing_comes_of_a_file_that_is_damaged_near_its_end(command, refusal, filled, file):
    command("backup", file)
    with zipfile.ZipFile(file) as archive:
        place = archive.getinfo("auth_user_groups.ndjson").header_offset + 80  # Behind the head of the part.
    damaged = bytearray(file.read_bytes())
    damaged[place] ^= 0xFF
    file.write_bytes(damaged)
    empty()
    assert "not a complete backup" in refusal("restore", file)
    assert all(rows == [] for rows in contents().values())


def test_tables_of_another_version_are_refused(command, refusal, file):
    command("backup", file)
    known = {"auth": "0012_alter_user_first_name_max_length", "tasks_app": "0003_due_times"}
    for other, words in (
        ({"auth": "0001_initial"}, r"tables of another version of Django \(0001_initial; here 0012.*then start this"),
        ({"tasks_app": "0999_later"}, r"a later version wrote the backup \(0999_later\): restore it with that version"),
        ({"tasks_app": "0001_initial"}, "the backup was made by an unreleased revision with other tables"),
    ):
        rewrite(file, lambda manifest, other=other: {**manifest, "migrations": {**known, **other}})
        assert re.search(words, refusal("restore", file))


def test_it_says_how_far_it_is(command, filled, file, monkeypatch):
    monkeypatch.setattr("taskstore_project.backup.file.TELL_EVERY", 2)
    assert "tasks_app_task: 2 rows\n" in command("backup", file)[1]
    assert "tasks_app_task: 2 rows\n" in restored(command, file)


def test_every_table_of_the_store_is_in_it(db):
    with connection.cursor() as cursor:
        there = set(connection.introspection.table_names(cursor))
    ours = {name for name in there if name.startswith("tasks_app_") and "endedtask_" not in name}
    # Numbers are in the manifest; that the log is intact is said of one database's log; a restore ends all sessions.
    sessions = {"tasks_app_endedsession", "tasks_app_sessiongeneration"}
    # Progress is renewed every second, and may be lost. What was cancelled is only told to workers that run now.
    others = {"tasks_app_counters", "tasks_app_log_intact", "tasks_app_progressreport", "tasks_app_cancelledtask"}
    assert ours - {table.name for table in TABLES} <= others | sessions
