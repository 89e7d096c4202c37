"""Tasks to files and back."""

import json

import pytest

from taskstore import NewTask

pytestmark = pytest.mark.once

WRONG = {"group": "mail", "priority": "high"}


def test_what_is_exported_can_be_imported(command, ann, tmp_path):
    ann.commit(adds=[NewTask(group="mail", data=b"\xff", labels={"tier": "gold"}), NewTask(group="reports")])
    file = tmp_path / "mail.ndjson"
    told = command("export", "group:mail", "--output", str(file))
    assert (told.code, told.out) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["mail.ndjson"]
    assert command("import", str(file), "--group", "again").out == "imported 1 tasks\n"
    [task] = ann.group("again")
    assert (task.data, task.labels) == (b"\xff", {"tier": "gold"})
    assert command("export", "group:mail", "group:reports").out == ""
    assert command("export", "--format", "csv").out.startswith("\ufeffid,group,")
    # What a program reads it writes again.
    assert command("import", "-", stdin=command("search", "group:mail", "--json").out).code == 0


def test_a_wrong_line_is_named_by_its_place_in_the_file(command, ann):
    lines = [json.dumps({"group": "mail"})] * 1_001 + ["", json.dumps(WRONG)]
    told = command("import", stdin="\n".join(lines))
    assert told.code == 2
    assert "line 1003: priority" in told.err
    assert "1 000 tasks were imported; continue with --from-line 1001" in told.err
    assert ann.stats().groups[0].ready == 1_000
    assert "imported" not in command("import", stdin=lines[-1]).err
    lines[-1] = lines[0]
    told = command("import", "--from-line", "1001", "--json", stdin="\n".join(lines))
    assert told.records == [{"imported": 2, "skipped": 0}]


def test_a_file_that_can_not_be_written_or_read_is_told(command, ann, tmp_path):
    ann.add("mail")
    told = command("export", "--output", str(tmp_path / "nowhere" / "file"))
    assert (told.code, "No such file or directory" in told.err) == (1, True)
    told = command("import", str(tmp_path / "nothing"))
    assert (told.code, "No such file or directory" in told.err) == (2, True)
