"""What was written is read again, and written once more it has the same bytes."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from taskstore.commands.files import NotFiles, ProjectContent, read_project, write_entries, write_result
from taskstore.types.command_record import Command, CommandList, CommandStatus, Output, Run

from .samples import PROJECTS

pytestmark = pytest.mark.once

# The example of TDF2's README.
EXAMPLE = Command(
    id="1448978609795035000_0",
    created=1448978609,
    until=1448985809,
    expected_duration=120,
    max_fails=5,
    cmd="echo 'A'; sleep 2; echo 'B'",
)
RUN = Run(worker="worker_123", started=1448978619, ended=1448978622, out=Output.of(b"A\nB\n"))
ITS_LINES = b"""\
1448978609795035000_0
1448978609
1448985809
120
5
0
echo 'A'; sleep 2; echo 'B'
"""


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@given(PROJECTS)
def test_a_project_is_the_same_after_it_was_files(content):
    with tempfile.TemporaryDirectory() as parent:
        first, second = Path(parent) / "first", Path(parent) / "second"
        write_entries(content.entries, first)
        read = read_project(first)
        write_entries(read.entries, second)
        assert read == content
        assert files(first) == files(second)


def test_the_example_is_written_as_it_is_documented(tmp_path):
    ran = replace(EXAMPLE, run=RUN)
    failed = replace(ran, id="1448978609795035000_1", fails=1, run=replace(RUN, err=Output.of(b"\xff\0")))
    closed = CommandList(
        name="1448978609",
        commands=(replace(ran, id="2_0"),),
        worker="worker_123",
        started=1448978619,
        finished=1448978622,
    )
    content = ProjectContent(
        commands=(
            (CommandStatus.NEW, EXAMPLE),
            (CommandStatus.COMPLETED, replace(ran, id="1_0")),
            (CommandStatus.FAILED_COUNT, failed),
        ),
        lists=((CommandStatus.CLOSED, closed),),
    )
    write_entries(content.entries, tmp_path / "mail")
    of_the_run = b"worker_123\n1448978619\n1448978622\n"
    assert files(tmp_path / "mail") == {
        "new/1448978609795035000_0.task": ITS_LINES,
        "completed/1_0.task": ITS_LINES.replace(b"1448978609795035000", b"1") + of_the_run,
        "completed/1_0.out": b"A\nB\n",
        "failed_count/1448978609795035000_1.task": ITS_LINES.replace(b"_0", b"_1").replace(b"5\n0\n", b"5\n1\n")
        + of_the_run,
        "failed_count/1448978609795035000_1.out": b"A\nB\n",
        "failed_count/1448978609795035000_1.err": b"\xff\0",
        "closed/1448978609_worker_123_1448978619_1448978622/2_0.task": ITS_LINES.replace(b"1448978609795035000", b"2")
        + of_the_run,
        "closed/1448978609_worker_123_1448978619_1448978622/2_0.out": b"A\nB\n",
    }


def test_where_bytes_are_missing_the_file_says_how_many(tmp_path):
    cut = Output.of(b"ab", cut_at=1, missing=3)
    write_result(replace(EXAMPLE, run=replace(RUN, out=cut)), tmp_path)
    assert (tmp_path / "1448978609795035000_0.out").read_bytes().startswith(b"a\n... 3 bytes are missing here")


@pytest.mark.parametrize(
    ("status", "entry", "told"),
    [
        (
            "new",
            replace(EXAMPLE, cmd="a\nb"),
            "new/1448978609795035000_0: its command line must not contain line breaks",
        ),
        ("new", replace(EXAMPLE, cmd="a\r"), "its command line must not contain line breaks"),
        ("new", replace(EXAMPLE, id="../a"), "new/../a: must consist of letters"),
        ("new", replace(EXAMPLE, id="a" * 201), "must have at most 200 characters before the number of failures"),
        ("new", replace(EXAMPLE, run=RUN), "must not have a run: its status is new"),
        ("completed", EXAMPLE, "must have a run: its status is completed"),
        (
            "completed",
            replace(EXAMPLE, run=replace(RUN, worker="a\nb")),
            "the name of its worker must not contain line breaks",
        ),
        ("closed", CommandList(name="5", worker="a", started=1, finished=2), "must contain commands"),
        ("closed", CommandList(name="5", commands=(EXAMPLE,)), "closed/5: must have a name that fits a directory"),
        (
            "closed",
            CommandList(name="5", commands=(EXAMPLE,), worker="a/b", started=1, finished=2),
            "closed/5_a/b_1_2: ",
        ),
        (
            "closed",
            CommandList(name="5", commands=(EXAMPLE,), worker="a" * 250, started=1, finished=2),
            "must have a name",
        ),
        ("open", CommandList(name="../5", commands=(EXAMPLE,)), "open/../5: must have a name that fits a directory"),
        (
            "open",
            CommandList(name="5", commands=(EXAMPLE, replace(EXAMPLE, cmd="false"))),
            "must have a unique id: another command has the same",
        ),
        (
            "failed_count",
            replace(EXAMPLE, run=replace(RUN, exit_code=3)),
            "it ended with 3 and wrote nothing to stderr",
        ),
    ],
)
def test_what_files_cannot_hold_is_named_and_nothing_is_written(tmp_path, status, entry, told):
    of_lists = isinstance(entry, CommandList)
    entries = ((CommandStatus(status), entry),)
    good = ((CommandStatus.NEW, replace(EXAMPLE, id="good")),)
    content = ProjectContent(commands=good if of_lists else good + entries, lists=entries if of_lists else ())
    with pytest.raises(NotFiles) as refused:
        write_entries(content.entries, tmp_path / "mail")
    assert len(refused.value.problems) == 1
    assert told in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_of_two_open_lists_of_one_name_the_second_gets_the_next_second(tmp_path):
    lists = tuple((CommandStatus.OPEN, CommandList(name="5", commands=(replace(EXAMPLE, id=each),))) for each in "ab")
    write_entries(ProjectContent(lists=lists).entries, tmp_path / "mail")
    assert (tmp_path / "mail/open/5/a.task").exists()
    assert (tmp_path / "mail/open/6/b.task").exists()


def test_a_directory_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(NotFiles, match="must be a new or an empty directory"):
        write_entries(ProjectContent(commands=((CommandStatus.NEW, EXAMPLE),)).entries, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
