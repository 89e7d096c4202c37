"""The file of a backup, without a database: what is read from it is what was written, or it is refused."""

import json
import stat
import tracemalloc
import zipfile
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskstore_project.backup.file import FORMAT, MANIFEST, Manifest, drafted, opened
from taskstore_project.base_command import CannotRun

pytestmark = pytest.mark.once

ROWS = [(number, f"text {number}", b"\x00\xff") for number in range(200)]
KINDS = [int, str, bytes]
WHOLE = Manifest(
    format=FORMAT,
    made_at_ms=1,
    database="sqlite",
    migrations={"auth": "0001_initial", "tasks_app": "0001_initial"},
    ids=200,
    commits=7,
    rows={"tasks_app_task": len(ROWS)},
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("backup") / "store.zip"
    write(file, WHOLE)
    return file


def write(file, manifest):
    with drafted(file) as draft:
        draft.put("tasks_app_task", map(msgspec.json.encode, ROWS))
        draft.end(manifest)


def read(file):
    with opened(file) as archive:
        return archive.manifest, list(archive.rows("tasks_app_task", KINDS))


def test_only_its_owner_can_read_it(file):
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@given(st.data())
def test_a_damaged_file_is_refused_unless_nothing_that_counts_is_damaged(file, data):
    whole = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    damaged = file.with_name("damaged.zip")
    damaged.write_bytes(whole)
    with suppress(CannotRun):
        assert read(damaged) == (WHOLE, ROWS)


def test_a_file_that_is_no_backup_is_refused(tmp_path):
    other = tmp_path / "other.zip"
    other.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(CannotRun, match="another kind of file"):
        read(other)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("letter.txt", "Dear Bob")
    with pytest.raises(CannotRun, match="another kind of file"):
        read(other)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CannotRun, match=r"can't read .*/none\.zip: No such file"):
        read(tmp_path / "none.zip")


def test_a_newer_format_is_refused_whatever_else_is_in_it(tmp_path):
    newer = tmp_path / "newer.zip"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr(MANIFEST, json.dumps({"format": FORMAT + 1, "sealed": True}))
    with pytest.raises(CannotRun, match=r"a newer Task Store wrote this backup \(format 3, here 2\)"):
        read(newer)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ids": 2**63}, r"\$.ids"),
        ({"ids": 2**62}, r"Expected `int` <= \d+ - at `\$.ids`"),
        ({"commits": -1}, r"\$.commits"),
        ({"made_at_ms": 2**62}, r"\$.made_at_ms"),
        ({"rows": {"tasks_app_task": 1.5}}, r"\$.rows"),
        ({"sealed": True}, "sealed"),
        ({"format": 0}, r"\$.format"),
        ({"migrations": {"tasks_app": "0001_initial"}}, "`auth`"),
    ],
)
def test_a_manifest_with_a_value_that_none_has_is_refused_by_its_name(tmp_path, wrong, words):
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(MANIFEST, json.dumps(msgspec.structs.asdict(WHOLE) | wrong))
    with pytest.raises(CannotRun, match=f"has a manifest that no backup has: .*{words}"):
        read(other)


def test_a_row_without_an_end_is_not_read_to_its_end(tmp_path, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = settings.TASKSTORE_MAX_REQUEST_BYTES = 2**20
    bomb = tmp_path / "bomb.zip"
    with drafted(bomb) as draft:
        draft.put("tasks_app_task", [b'[1, "' + b" " * 2**26])
        draft.end(WHOLE)
    assert bomb.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(CannotRun, match="a row of more than 4194304 bytes in tasks_app_task"):
            read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_missing_rows_are_noticed(tmp_path):
    short = tmp_path / "short.zip"
    write(short, msgspec.structs.replace(WHOLE, rows={"tasks_app_task": len(ROWS) + 1}))
    with pytest.raises(CannotRun, match="not a complete backup"):
        read(short)


def test_rows_of_other_columns_are_noticed(file):
    with opened(file) as archive, pytest.raises(CannotRun, match="not a complete backup"):
        list(archive.rows("tasks_app_task", [int, str]))


def test_what_goes_wrong_leaves_the_backup_before_alone(tmp_path):
    file = tmp_path / "store.zip"
    file.write_bytes(b"the one before")
    with pytest.raises(ZeroDivisionError), drafted(file) as draft:
        draft.put("tasks_app_task", (b"%d" % (1 // (3 - number)) for number in range(5)))
    assert file.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CannotRun, match=r"can't write .*: No such file or directory"), drafted(tmp_path / "no" / "x"):
        pass
