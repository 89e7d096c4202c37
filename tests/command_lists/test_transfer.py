"""A whole project out of the store, and into one: the same state, and nothing twice."""

import json
import threading
from itertools import count

import pytest
from django.db import connections
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tasks_app.commands import make_lists, process_closed, projects
from tasks_app.commands.import_export import entries_in, export_project, import_project
from tasks_app.core.actors import PROGRAM, Actor
from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from taskstore.commands.files import ProjectContent
from taskstore.errors import Forbidden, InvalidInput, LimitExceeded
from taskstore.types.command_record import Command, CommandList, CommandStatus, Line, Output, Run, group_of
from taskstore.types.commands import ImportedCommands
from taskstore.types.tasks import NOBODY, NewTask
from tests.command_files.samples import PROJECTS

from .commands import BOB, close, commands_in, submitted

pytestmark = pytest.mark.django_db(transaction=True)

COMMAND = Command(id="5_0", cmd="true", created=5, until=2**40, expected_duration=60, max_fails=3)
RUN = Run(worker="w", started=6, ended=8, duration_ms=1_500, exit_code=0, out=Output.of(b"\xff", cut_at=1, missing=7))
NAMES = count()


def lines(*entries):
    return b"".join(Line.of((CommandStatus(status), record)).encode() for status, record in entries)


def imported(project, body, actor=PROGRAM):
    return import_project(project, entries_in(body), actor)


def exported(project="mail"):
    found = [Line.read(json.loads(line)).entry for line in b"".join(export_project(project)).splitlines()]
    return sorted(found, key=lambda entry: (entry[0], str(entry[1])))


def sorted_entries(content: ProjectContent):
    return sorted(content.entries, key=lambda entry: (entry[0], str(entry[1])))


def all_states(settings):
    """A project in which there is something of every status."""
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1h/0s"
    fates = {
        "completed": lambda command: replace(command, run=RUN),
        "failed_archive": lambda command: replace(command, run=replace(RUN, err=Output.of(b"no"))),
    }
    for status in fates:
        submitted(1, "mail")
        make_lists("mail")
        close("mail", fates[status])
        process_closed("mail")
    make_lists("mail")
    submitted(2, "mail", max_fails=1)
    make_lists("mail")
    close("mail", lambda command: replace(command, run=RUN, list="5_w_6_8"))
    Task.objects.claim(group_of("mail", CommandStatus.OPEN), owner=BOB)
    submitted(1, "mail")


@given(PROJECTS)
def test_what_was_imported_is_exported_as_it_was(content):
    project = f"mail {next(NAMES)}"
    imported(project, lines(*content.entries))
    assert exported(project) == sorted_entries(content)


def test_all_that_is_known_of_a_live_project_goes_into_another_store(settings):
    all_states(settings)
    body = b"".join(export_project("mail"))
    statuses = {status for status, _ in exported()}
    assert statuses == {"completed", "failed_archive", "closed", "running", "open", "new"}
    imported("reports", body)
    # A list that was running has lost its worker, and is open.
    reopened = [
        ("open", CommandList(name=record.name, commands=record.commands)) if status == "running" else (status, record)
        for status, record in exported()
    ]
    assert exported("reports") == sorted(reopened, key=lambda entry: (entry[0], str(entry[1])))


def test_an_import_that_is_sent_again_adds_nothing_though_the_commands_have_moved_on(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=2/1h/0s"
    body = lines(
        *(("new", replace(COMMAND, id=f"{number}_0")) for number in range(5)),
        ("open", CommandList(name="9", commands=(replace(COMMAND, id="a_0"), replace(COMMAND, id="b_0")))),
    )
    assert imported("mail", body) == ImportedCommands(commands=7, lists=1, there_already=0)
    make_lists("mail")
    close("mail", lambda command: replace(command, run=RUN))
    close("mail", lambda command: replace(command, run=replace(RUN, err=Output.of(b"no"))))
    process_closed("mail")
    before = exported()
    assert imported("mail", body) == ImportedCommands(commands=0, lists=0, there_already=7)
    assert exported() == before


@pytest.mark.parametrize("there", [("new", COMMAND), ("open", CommandList(name="5", commands=(COMMAND,)))])
def test_another_command_of_the_same_id_is_refused_and_nothing_is_added(there):
    imported("mail", lines(there))
    body = lines(("new", replace(COMMAND, id="6_0")), ("new", replace(COMMAND, cmd="false")))
    with pytest.raises(InvalidInput) as refused:
        imported("mail", body)
    assert refused.value.fields == {"line 2: command.id": ["must be a new id: the project has another command 5_0"]}
    assert len(exported()) == 1


def test_a_list_that_is_there_in_part_is_refused():
    imported("mail", lines(("new", COMMAND)))
    with pytest.raises(InvalidInput) as refused:
        imported("mail", lines(("open", CommandList(name="5", commands=(COMMAND, replace(COMMAND, id="6_0"))))))
    assert refused.value.fields == {"line 1: list": ["must be all new: 1 of its 2 commands exist, such as 5_0"]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"status": "old"}, "status must be one of new, new_stashed"),
        ({"status": "open"}, "an entry with the status open must have the member list and no other"),
        ({"list": {"name": "5"}}, "an entry with the status new must have the member command and no other"),
        ({"command": None}, "an entry with the status new must have the member command and no other"),
        (
            {"command": {"id": "5_0", "cmd": "true", "fails": "no"}},
            "command.fails must be an integer between 0 and 253402300799999, not a string",
        ),
        ({"command": {"id": "5_0"}}, "command.cmd is required"),
        ({"colour": "red"}, "line 2: colour: is not a known field"),
        ({"command": {"id": "5_0", "cmd": "true", "untill": 1}}, "line 2: command.untill: is not a known field"),
        ({"command": {"id": "../5", "cmd": "true"}}, "line 2: command.id: must consist of letters, digits"),
        ({"command": {"id": "5_0", "cmd": "a\nb"}}, "line 2: command.cmd: must be one command line"),
        ({"command": {"id": "1_0", "cmd": "true"}}, "line 2: command.id: must be unique: line 1 has 1_0 too"),
        (
            {"command": {"id": "5_0", "cmd": "true", "run": {"worker": "w"}}},
            "line 2: command: must not have a run: its status is new",
        ),
        ({"status": "completed"}, "line 2: command: must have a run: its status is completed"),
        ({"status": "completed", "command": {"id": "5_0", "cmd": "true", "run": {}}}, "command.run.worker is required"),
        (
            {
                "status": "completed",
                "command": {"id": "5_0", "cmd": "x", "run": {"worker": "w", "out": {"base64": "?"}}},
            },
            "line 2: command.run.out.base64: must be valid Base64",
        ),
        (
            {"status": "completed", "command": {"id": "5_0", "cmd": "x", "run": {"worker": "w", "err": {"cut_at": 1}}}},
            "line 2: command.run.err.cut_at: must be at most 0",
        ),
        (
            {"status": "failed_time", "command": {"id": "5_0", "cmd": "true", "list": "5" * 300}},
            "line 2: labels.list: must have at most 255 characters",
        ),
        ({"status": "open", "command": None, "list": {"name": "a"}}, "line 2: list.name: must be a number of seconds"),
        (
            {"status": "open", "command": None, "list": {"name": "5"}},
            "line 2: list.commands: must have between 1 and 1000 commands",
        ),
        (
            {"status": "closed", "command": None, "list": {"name": "5", "commands": [{"id": "5_0", "cmd": "true"}]}},
            "line 2: list.worker: is required for a closed list",
        ),
        (
            {
                "status": "closed",
                "command": None,
                "list": {"name": "5", "worker": "w" * 255, "commands": [{"id": "5_0", "cmd": "true"}]},
            },
            "line 2: list.worker: must be shorter",
        ),
        (
            {
                "status": "closed",
                "command": None,
                "list": {"name": "5", "worker": "w\0", "commands": [{"id": "5_0", "cmd": "true"}]},
            },
            "line 2: list.worker: must not contain the NUL",
        ),
        (
            {"status": "open", "command": None, "list": {"name": "5", "commands": [{"id": "5", "cmd": "x"}] * 2}},
            "line 2: list.commands[1].id: must be unique: line 2 has 5 too",
        ),
    ],
)
def test_the_wrong_line_is_named_and_nothing_is_added(change, told):
    good = {"status": "new", "command": {"id": "1_0", "cmd": "true"}}
    wrong = {"status": "new", "command": {"id": "5_0", "cmd": "true"}} | change
    with pytest.raises(InvalidInput) as refused:
        imported("mail", f"{json.dumps(good)}\n{json.dumps(wrong)}\n".encode())
    assert told in str(refused.value)
    assert all(path.startswith("line 2") for path in refused.value.fields)
    assert not projects()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_refused_by_name(body):
    with pytest.raises(InvalidInput):
        imported("mail", body)


def test_more_than_a_commit_takes_is_refused(settings):
    settings.TASKSTORE_MAX_CHANGES = 2
    with pytest.raises(LimitExceeded):
        imported("mail", lines(*(("new", replace(COMMAND, id=f"{number}_0")) for number in range(3))))
    settings.TASKSTORE_MAX_DATA_BYTES = 1_000
    with pytest.raises(LimitExceeded) as refused:
        imported("mail", lines(("new", replace(COMMAND, cmd="x" * 1_000))))
    assert "line 1: data" in refused.value.fields


def test_what_is_no_name_of_a_project_is_refused():
    with pytest.raises(InvalidInput):
        imported("a/b", lines(("new", COMMAND)))
    with pytest.raises(InvalidInput):
        export_project("a/b")


def test_who_may_not_change_commands_adds_none():
    with pytest.raises(Forbidden, match="not here"):
        imported("mail", lines(("new", COMMAND)), Actor("ann", GroupScope(no_commands_because="not here")))
    assert not projects()


def test_what_is_no_command_is_left_out():
    for status in (CommandStatus.NEW, CommandStatus.OPEN):
        group, data = group_of("mail", status), b'{"id":"\xff","id":"5_0"'
        Task.objects.commit(owner=NOBODY, adds=[NewTask(group=group, data=data, labels={"command": "5", "list": "5"})])
    assert exported() == []
    assert imported("mail", lines(("new", COMMAND))).commands == 1
    assert exported() == [("new", COMMAND)]


def test_two_imports_of_the_same_at_once_add_it_once():
    body = lines(*(("new", replace(COMMAND, id=f"{number}_0")) for number in range(50)))
    begin, came = threading.Barrier(2), []

    def send():
        begin.wait(30)
        try:
            came.append(imported("mail", body))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted((each.commands, each.there_already) for each in came) == [(0, 50), (50, 0)]
    assert len(commands_in("mail", CommandStatus.NEW)) == 50
