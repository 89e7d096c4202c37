"""A command that is refused, or that was told the wrong folder, leaves nothing behind."""

import pytest

from .harness import Store

pytestmark = pytest.mark.once


@pytest.fixture
def place(tmp_path):
    return Store(tmp_path)


REFUSED = {
    "token": ("token", "create", "mail", "--scope", "work"),
    "a bad token": ("token", "create", "", "--scope", "work"),
    "tokens": ("token", "list"),
    "backup": ("backup", "here.backup"),
    "restore": ("restore", "no-such-file"),
    "up what": ("up", "--nope"),
    "up where": ("up", "--port", "x"),
    "up for whom": ("up", "--host", "192.0.2.1"),
    "serve": ("serve", "--workers", "0"),
    "nothing": ("nothing",),
    "migrate": ("migrate", "tasks_app", "9999"),
    "migrate what": ("migrate", "nothing"),
    "migrate how": ("migrate", "--nonsense"),
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_it_leaves_nothing_behind(place, arguments):
    told = place.manage(*arguments)
    assert told.returncode != 0, told.stdout
    assert not place.folder.exists()


@pytest.mark.parametrize("arguments", [["check"], ["diffsettings"], ["--help"], ["version"]])
def test_a_command_that_needs_no_store_makes_none(place, arguments):
    told = place.manage(*arguments)
    assert told.returncode == 0, told.stderr
    assert not place.folder.exists()


def test_a_restore_that_fails_halfway_leaves_nothing_behind(place, tmp_path):
    """The tables are made before the backup's rows are looked at."""
    with place.up() as server:
        server.ask("POST", "/update", place.token, json={"clientid": 1, "adds": [{"group": "mail"}]})
        backup = tmp_path / "whole"
        assert place.manage("backup", str(backup)).returncode == 0
    other = Store(tmp_path / "other")
    other.folder.parent.mkdir()
    broken = tmp_path / "broken"
    broken.write_bytes(backup.read_bytes()[:-200])
    assert other.manage("restore", str(broken)).returncode == 2
    assert not other.folder.exists()
    assert other.manage("restore", str(backup)).returncode == 0
    assert (other.folder / "taskstore.sqlite3").exists()


def test_migrate_makes_what_it_needs(place):
    assert place.manage("migrate").returncode == 0
    assert (place.folder / "taskstore.sqlite3").exists()
    assert place.manage("migrate", "tasks_app", "9999").returncode != 0
    assert (place.folder / "taskstore.sqlite3").exists()
