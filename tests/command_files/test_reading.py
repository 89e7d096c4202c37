"""Directories that are not as TDF2 makes them: everything that is wrong is named."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskstore.commands.files import NotFiles, read_project
from taskstore.commands.files.parsing import LONGEST_OUTPUT
from taskstore.types.command_record import Output, Run

pytestmark = pytest.mark.once

SEVEN = "{id}\n100\n200\n60\n3\n0\ntrue\n"
TEN = SEVEN + "ann_1\n150\n151\n"


def put(root, path, content=None):
    """Write a file; without content that of a command that fits the place."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        was_run = path.split("/")[0] not in ("new", "new_stashed", "open", "open_stashed", "running")
        content = (TEN if was_run else SEVEN).format(id=file.stem)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def problems(root):
    with pytest.raises(NotFiles) as refused:
        read_project(root)
    return refused.value.problems


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (SEVEN + "a\n", "new/1_0.task: must have 7 lines, or 10 after a run, not 8"),
        ("", "new/1_0.task: must have 7 lines, or 10 after a run, not 0"),
        (SEVEN.replace("100", "soon"), 'line 2: created must be an integer between 0 and 253402300799999, not "soon"'),
        (SEVEN.replace("100", "-1"), 'line 2: created must be an integer between 0 and 253402300799999, not "-1"'),
        (SEVEN.replace("200", "007"), 'line 3: until must be an integer between 0 and 253402300799999, not "007"'),
        (SEVEN.replace("60", "٦٠"), "line 4: expected_duration must be an integer"),
        (SEVEN.replace("60", "9" * 15), "line 4: expected_duration must be an integer"),
        (SEVEN.replace("60", "\x1b[2J"), 'not "\\x1b[2J"'),
        (SEVEN.replace("true", ""), "line 7: must be a command line, not an empty line"),
        (SEVEN.replace("true", "  "), "line 7: must be a command line, not an empty line"),
        (SEVEN.replace("true", "a\rb"), "line 7: must not contain CR or NUL"),
        (SEVEN.replace("true", "a\0b"), "line 7: must not contain CR or NUL"),
        (SEVEN.replace("true", "a" * 65_537), "line 7: must be at most 65536 bytes"),
        (SEVEN.replace("{id}", "2_0"), 'line 1: must be the id in the file\'s name, not "2_0"'),
        (SEVEN.replace("{id}", "../1_0"), "line 1: must be the id in the file's name"),
        (SEVEN.replace("\n", "\r\n"), "line 1: must end with LF, not CR LF"),
        (SEVEN.replace("60", "\xff").encode("latin-1"), "line 4: must be valid UTF-8"),
        (SEVEN.replace("true", "\xff" * 65_537).encode("latin-1"), "line 7: must be at most 65536 bytes"),
        (SEVEN[:-1], "the last line has no end"),
        (SEVEN + "\n1\n2\n", "line 8: the name of a worker, not an empty line"),
        (TEN, "must not have a run: its status is new"),
        (b"x" * 100_000, "its .task file must be at most"),
    ],
)
def test_a_wrong_task_is_named_with_its_line(tmp_path, content, told):
    given_id = content.replace(b"{id}", b"1_0") if isinstance(content, bytes) else content.replace("{id}", "1_0")
    put(tmp_path, "new/1_0.task", given_id)
    put(tmp_path, "new/2_0.task")
    found = problems(tmp_path)
    assert all(problem.startswith("new/1_0.task: ") for problem in found)
    assert told in found[0]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("new/1 0.task", "new/1 0.task: must consist of letters"),
        ("new/-rf.task", "new/-rf.task: must consist of letters"),
        ("new/.task", "new/.task: must consist of letters"),
        ("new/\x1b.task", "new/\\x1b.task: must consist of letters"),
        ("new/README", "new/README: must have a name that ends in .task, .out or .err"),
        ("new/1_0.out", "new/1_0.out: needs new/1_0.task, which does not exist"),
        ("completed/1_0.err", "completed/1_0.err: needs completed/1_0.task, which does not exist"),
        ("new/5/1_0.task", "new/5: must be a file"),
        ("old/1_0.task", "old: must be one of cancelled, closed, completed"),
        ("new", "new: must be a directory"),
        ("open/1_0.task", "open/1_0.task: must be a directory"),
        ("open/5_ann_3/1_0.task", "open/5_ann_3: must be a valid name of a list with the status open"),
        ("open/5_/1_0.task", "open/5_: must be a valid name of a list with the status open"),
        ("open/five/1_0.task", "open/five: must be a valid name of a list"),
        ("running/5/1_0.task", "running/5: must be a valid name of a list with the status running"),
        ("running/5__3/1_0.task", "running/5__3: must be a valid name of a list"),
        ("closed/5_ann_3/1_0.task", "closed/5_ann_3: must be a valid name of a list with the status closed"),
        ("closed/5_ann_3_x/1_0.task", "closed/5_ann_3_x: must be a valid name of a list"),
        (
            "failed/1_0.task",
            "failed/1_0.task: must have 10 lines, and a .err file that is not empty: its status is failed",
        ),
    ],
)
def test_a_wrong_name_is_told(tmp_path, path, told):
    put(tmp_path, "completed/9_0.task")
    put(tmp_path, path)
    [problem] = problems(tmp_path)
    assert problem.startswith(told)


def test_all_that_is_wrong_is_named_at_once(tmp_path):
    put(tmp_path, "new/1_0.task", "1_0\nx\ny\n60\n3\n0\ntrue\n")
    put(tmp_path, "open/five/2_0.task", "2_0\n")
    put(tmp_path, "completed/3_0.task", SEVEN.format(id="3_0"))
    assert [problem.partition(": ")[0] for problem in problems(tmp_path)] == [
        "open/five/2_0.task",
        "open/five",
        "new/1_0.task",
        "new/1_0.task",
        "completed/3_0.task",
    ]


def test_an_id_is_there_once(tmp_path):
    put(tmp_path, "new/1_0.task")
    put(tmp_path, "open/5/1_0.task")
    assert problems(tmp_path) == ("new/1_0.task: must have a unique id: open/5/1_0.task has the same",)


def test_a_list_that_is_running_and_one_that_is_open_have_two_names(tmp_path):
    put(tmp_path, "open/5/1_0.task")
    put(tmp_path, "running/5_ann_3/2_0.task")
    assert problems(tmp_path) == (
        "running/5_ann_3: must have a unique name: open/5 is an open list with the same name",
    )


def test_there_has_to_be_something(tmp_path):
    (tmp_path / "new").mkdir()
    assert problems(tmp_path) == (f"{tmp_path}: must contain commands",)
    (tmp_path / "open" / "5").mkdir(parents=True)
    assert problems(tmp_path) == ("open/5: must contain commands",)
    assert problems(tmp_path / "none") == (f"{tmp_path / 'none'}: can't be read: No such file or directory",)


@pytest.mark.parametrize("place", ["new/2_0.task", "new/1_0.out", "open/5", "completed"])
def test_links_are_not_followed(tmp_path, place):
    put(tmp_path, "secret/completed/3_0.task")
    root = tmp_path / "root"
    put(root, "new/1_0.task")
    (root / place).parent.mkdir(exist_ok=True)
    target = tmp_path / "secret" / ("completed/3_0.task" if place.startswith("new") else "completed")
    (root / place).symlink_to(target)
    [problem] = problems(root)
    assert problem.startswith(f"{place}: must be a")


def test_a_pipe_is_not_waited_for(tmp_path):
    put(tmp_path, "new/1_0.task")
    os.mkfifo(tmp_path / "new" / "2_0.task")
    assert problems(tmp_path) == ("new/2_0.task: must be a file, not a directory or a link",)


def test_an_output_that_no_task_can_hold_is_refused(tmp_path):
    put(tmp_path, "completed/1_0.task")
    put(tmp_path, "completed/1_0.out", b"x" * (LONGEST_OUTPUT + 1))
    assert problems(tmp_path) == (f"completed/1_0.task: its .out file must be at most {LONGEST_OUTPUT} bytes",)


def test_outputs_belong_to_a_run_and_may_be_empty(tmp_path):
    put(tmp_path, "new/1_0.task")
    put(tmp_path, "new/1_0.err", "")
    [(_, command)] = read_project(tmp_path).commands
    assert command.run is None
    put(tmp_path, "new/1_0.err", "no")
    assert problems(tmp_path) == ("new/1_0.task: it has an output, and 7 lines: those of a command that was not run",)


@pytest.mark.parametrize(
    ("lines", "fates"),
    [
        (TEN, ["failed_time 1_0"]),  # Past its last start.
        (TEN.replace("200", "2000"), ["failed_archive 1_0", "new 1_1"]),
        (TEN.replace("\n3\n0", "\n1\n0"), ["failed_count 1_0"]),
    ],
)
def test_what_has_failed_is_settled(tmp_path, lines, fates):
    put(tmp_path, "failed/1_0.task", lines.format(id="1_0"))
    put(tmp_path, "failed/1_0.err", "no")
    content = read_project(tmp_path, now=1_000)
    assert [f"{status} {command.id}" for status, command in content.commands] == fates
    assert content.commands[0][1].run == Run(
        worker="ann_1", started=150, ended=151, duration_ms=1_000, err=Output(text="no")
    )


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_a_command_or_refused_by_name(content):
    with tempfile.TemporaryDirectory() as directory:
        put(Path(directory), "new/1_0.task", content)
        assert all(problem.startswith("new/1_0.task: ") for problem in problems(Path(directory)))
