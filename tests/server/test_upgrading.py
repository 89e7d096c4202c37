"""Upgrades from each release: `migrate` brings its tables up to date, and everything in them can be read and used."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lab.testing.release_content import ANN, BOB, LARGE, LATER_MS, PASSWORD, PERSON, TOKEN
from lab.testing.releases import FIXTURES

from .conftest import new_store
from .harness import Server, Store, wait_for
from .nodes import signed_in

RELEASES = sorted(FIXTURES.glob("release-*"))
# Fixtures grow old, and housekeeping must not delete what is in them.
KEPT: dict[str, Any] = {
    "TASKSTORE_HISTORY_DAYS": "36500",
    "TASKSTORE_AUDIT_DAYS": "36500",
    "TASKSTORE_RETENTION": "*=forever",
}
GROUPS = ["a/b ü", "jobs/default", "jobs/default/succeeded", "mail", "moved", "reports", "schedules", "sent"]

# The parts of a schema, without the order of columns. The trail's partitions of days are left out, too.
SQLITE_SCHEMA = [
    "SELECT type, name, tbl_name, iif(type = 'table', NULL, sql) FROM sqlite_master",
    """
    SELECT tables.name, columns.name, columns.type, columns."notnull", columns.dflt_value, columns.pk
    FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    """,
    """
    SELECT tables.name, keys."table", keys."from", keys."to", keys.on_delete
    FROM sqlite_master AS tables, pragma_foreign_key_list(tables.name) AS keys
    """,
]
POSTGRESQL_SCHEMA = [
    """
    SELECT relname, relkind::text, relpersistence::text, reloptions, pg_get_partkeydef(oid)
    FROM pg_class
    WHERE relnamespace = 'public'::regnamespace
    """,
    """
    SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default, collation_name,
        identity_generation
    FROM information_schema.columns
    WHERE table_schema = 'public'
    """,
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    # NOT NULL is a fact of columns above; later servers count it among the constraints.
    """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint
    WHERE contype <> 'n' AND conrelid > 0
    """,
    "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    """
    SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by, cycle, cache_size
    FROM pg_sequences
    WHERE schemaname = 'public'
    """,
]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.name)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that the release left, after `migrate`."""
    with new_store(tmp_path_factory.mktemp("upgraded")) as store:
        load(request.param, store)
        done = store.manage("migrate", "-v0", **KEPT)
        assert (done.returncode, done.stderr) == (0, "")
        yield store


@pytest.fixture(scope="module")
def server(upgraded: Store) -> Iterator[Server]:
    with upgraded.up(**KEPT) as server:
        yield server


def load(release: Path, store: Store) -> None:
    if store.database_url:
        with psycopg.connect(store.database_url) as postgresql:
            postgresql.execute((release / "postgresql.sql").read_bytes())
    else:
        store.folder.mkdir(0o700)
        with closing(sqlite3.connect(store.folder / "taskstore.sqlite3")) as sqlite:
            sqlite.executescript((release / "sqlite.sql").read_text())


def schema(store: Store) -> list[list[str]]:
    if store.database_url:
        with psycopg.connect(store.database_url) as postgresql:
            found = [postgresql.execute(query.encode()).fetchall() for query in POSTGRESQL_SCHEMA]
    else:
        with closing(sqlite3.connect(store.folder / "taskstore.sqlite3")) as sqlite:
            found = [sqlite.execute(query).fetchall() for query in SQLITE_SCHEMA]
    return [sorted(str(row) for row in rows if not re.search(r"endedtask_\d", str(row))) for rows in found]


def ask(server: Server, path: str, **parameters: str) -> Any:
    answer = server.ask("GET", path, TOKEN, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def done(server: Server, path: str, owner: int, **asked: object) -> Any:
    """The tasks that a claim or a commit answers."""
    answer = server.ask("POST", path, TOKEN, json={"clientid": owner, **asked}).json()
    assert answer["error"] is None
    return answer["tasks"]


def tasks_in(server: Server, group: str) -> Any:
    return ask(server, "/group", name=group, owned="yes")


def ends_of(server: Server, task_id: int) -> list[str | None]:
    """How each id of the chain ended; None for the living task."""
    return [step["ended"] and step["ended"]["how"] for step in ask(server, f"/history/{task_id}")["steps"]]


def test_its_tables_are_those_of_a_new_store(upgraded, empty_place):
    assert empty_place.manage("migrate", "-v0", **KEPT).returncode == 0
    assert schema(upgraded) == schema(empty_place)


def test_what_it_holds_can_be_read(server):
    assert ask(server, "/groups") == GROUPS
    by_data = {task["data"]: task for task in tasks_in(server, "mail")}
    assert by_data.keys() == {None, "changed", "later", "letter 3"}
    assert by_data[None]["data_base64"] == "AP8="
    assert by_data[None]["labels"] == {"to": "Bob", "für": 'a"b'}
    assert by_data[None]["priority"] == 10
    assert by_data["letter 3"]["error"] == "no such recipient"
    assert by_data["later"]["timespec"] == LATER_MS
    [letter] = tasks_in(server, "a/b ü")
    assert (letter["data"], letter["data_type"]) == (LARGE.decode(), "type.googleapis.com/Letter")
    found = {task["id"] for task in ask(server, "/search", q="label.to:Bob")["tasks"]}
    assert found == {by_data[None]["id"], by_data["changed"]["id"]}


def test_what_became_of_its_tasks_is_known(server):
    [moved] = tasks_in(server, "moved")
    [held] = tasks_in(server, "reports")
    assert ends_of(server, moved["origin"]) == ["moved", None]
    assert ends_of(server, held["id"]) == ["claimed", "renewed", None]
    assert ends_of(server, moved["origin"] + 1) == ["deleted"]


def test_its_counts_are_right_in_the_api_and_in_the_console(server):
    groups = {each["group"]: each for each in ask(server, "/stats")["groups"]}
    assert groups.keys() == set(GROUPS)
    mail = groups["mail"]
    assert [mail[state] for state in ("ready", "claimed", "expired", "scheduled", "failed")] == [3, 0, 0, 1, 1]
    assert [name for name, group in groups.items() if group["paused"]] == ["moved"]
    with signed_in(server, PERSON, PASSWORD) as browser:
        page = browser.get("/console/").text
    tiles = dict(re.findall(r'data-live-total="(\w+)">(\d+)<', page))
    assert tiles == {state: str(sum(group[state] for group in groups.values())) for state in tiles}
    assert {"ready", "failed"} <= tiles.keys()


def test_its_jobs_schedules_and_audit_are_there(server):
    jobs = ask(server, "/jobs")["jobs"]
    assert {job["status"]: job["result"] for job in jobs} == {"pending": None, "succeeded": {"pages": 3}}
    schedules = {schedule["name"]: schedule for schedule in ask(server, "/schedules")}
    assert {name: schedule["state"] for name, schedule in schedules.items()} == {"hourly": "paused", "yearly": "on"}
    assert schedules["hourly"]["paused"]["reason"] == "until the disks are larger"
    actions = [entry["action"] for entry in ask(server, "/audit")["entries"]]
    assert {"add user", "purge", "put schedule", "pause schedule", "pause"} <= set(actions)


def test_workers_go_on_with_it(server):
    newest = max(task["id"] for group in GROUPS for task in tasks_in(server, group))
    [first] = done(server, "/claim", ANN, group="mail")
    assert (first["priority"], first["claims"]) == (10, 1)
    assert first["id"] > newest
    assert done(server, "/claim", ANN, group="moved") == []  # It is paused.
    assert (
        done(server, "/update", ANN, deletes=[first["id"]], adds=[{"group": "mail", "data": "new"}])[0]["id"] > newest
    )
    assert ends_of(server, first["id"]) == ["claimed", "deleted"]
    # Bob claimed it before the upgrade, and its data has a row of its own.
    [letter] = tasks_in(server, "a/b ü")
    [kept] = done(server, "/update", BOB, updates=[{"id": letter["id"], "keep": True}])
    assert kept["data"] == LARGE.decode()


def test_what_was_purged_is_taken_back(server):
    [purge] = [each for each in ask(server, "/operations")["operations"] if each["verb"] == "purge"]
    started = server.ask("POST", f"/operations/{purge['id']}/undo", TOKEN, json={"reason": "a mistake"})
    assert started.status_code in (200, 201, 202), started.text
    wait_for(lambda: [task["data"] for task in tasks_in(server, "spam")] == ["spam"] * 2, "the tasks that were purged")
