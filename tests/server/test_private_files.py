"""What is in the data directory is for its user alone."""

import os
import stat
from pathlib import Path

import pytest

from taskstore_project import private_files


@pytest.fixture(autouse=True)
def careless_umask():
    """That of most users; the processes of a test inherit it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[str, str]]:
    """Of all that is there: what it is, and its mode."""
    paths = [folder, *folder.rglob("*")]
    return {
        ("folder" if path.is_dir() else "file", oct(stat.S_IMODE(path.lstat().st_mode)))
        for path in paths
        if not path.is_symlink()
    }


PRIVATE = {("folder", "0o700"), ("file", "0o600")}


def test_what_a_server_makes_is_private(empty_place):
    with empty_place.up() as server:
        server.ask("POST", "/update", empty_place.token, json={"clientid": 1, "adds": [{"group": "mail"}]})
        made = modes(empty_place.folder)
        if not empty_place.database_url:
            assert (empty_place.folder / "taskstore.sqlite3-wal").exists()
    assert made == PRIVATE


@pytest.mark.parametrize(
    "command",
    [
        ["migrate"],
        *(pytest.param(each, marks=pytest.mark.once) for each in (["check"], ["token", "list"], ["backup", "BACKUP"])),
    ],
)
def test_what_other_commands_make_is_private(empty_place, tmp_path, command):
    folder, backup = empty_place.folder, empty_place.folder / "backup"
    if command[0] == "backup":
        assert empty_place.manage("migrate").returncode == 0
        folder.mkdir(mode=0o700, exist_ok=True)
    done = empty_place.manage(*(str(backup) if word == "BACKUP" else word for word in command))
    assert backup.exists() == (command[0] == "backup"), done.stderr
    # Where --data is mistyped nothing is left: only the commands that start a server make a folder without a database.
    makes_folder = command[0] == "backup" or (command[0] == "migrate" and not empty_place.database_url)
    assert folder.exists() == makes_folder
    if makes_folder:
        assert modes(folder) == PRIVATE


@pytest.mark.once
def test_wrong_modes_are_put_right_at_the_start_with_one_line(empty_place, tmp_path):
    with empty_place.up() as server:  # It makes the key.
        assert server.end() == 0
    folder, outside = empty_place.folder, tmp_path / "outside"
    outside.write_text("of somebody else")
    outside.chmod(0o644)
    (folder / "logs").mkdir(mode=0o755)
    (folder / "logs" / "old.log").write_text("what happened")
    (folder / "link").symlink_to(outside)
    folder.chmod(0o755)
    (folder / "secret_key").chmod(0o644)
    with empty_place.up() as server:
        assert modes(folder) == PRIVATE
        server.end()
        complaints = server.complaints.splitlines()
    [line] = [line for line in complaints if "corrected permissions" in line]
    assert "secret_key" in line
    assert "logs/old.log" in line
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    with empty_place.up() as server:
        server.end()
        assert "corrected permissions" not in server.complaints


@pytest.mark.once
def test_a_folder_where_no_server_can_start_stays_as_it_is(sqlite_store):
    folder = sqlite_store.folder
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "taskstore.sqlite3").write_text("This is a letter to Bob. " * 100)
    assert sqlite_store.manage("up", "--port", "0", "--grpc-port", "0").returncode == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "taskstore.sqlite3").stat().st_mode) == 0o644


@pytest.mark.once
def test_a_long_list_is_cut_short(tmp_path, caplog):
    tmp_path.chmod(0o700)
    for number in range(9):
        (tmp_path / f"file{number}").touch(mode=0o644)
    private_files.put_right(tmp_path)
    assert len(caplog.records) == 1
    assert "and 4 more" in caplog.text


@pytest.mark.once
def test_a_folder_that_many_share_is_left_alone(tmp_path, monkeypatch, caplog):
    shared, home = tmp_path / "shared", tmp_path / "home"
    for folder in (shared, home):
        folder.mkdir()
        (folder / "notes").touch(mode=0o644)
    shared.chmod(0o1777)
    monkeypatch.setenv("HOME", str(home))
    for folder in (shared, home):
        private_files.put_right(folder)
        assert stat.S_IMODE((folder / "notes").stat().st_mode) == 0o644
    assert caplog.text.count("is not used by the store alone") == 2
