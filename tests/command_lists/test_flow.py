"""A command on its way through the groups of its project: submitted, in a list, run, settled."""

import logging

import pytest
from msgspec.structs import replace

from tasks_app.commands import make_lists, process_closed, submit
from tasks_app.models import Task
from taskstore.errors import InvalidInput
from taskstore.types.command_record import Command, CommandList, CommandStatus, Run, group_of, new_command_task
from taskstore.types.commands import Submission
from taskstore.types.tasks import NOBODY, Change, NewTask

from .commands import BOB, close, commands_in, lists_in, submitted

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.mark.parametrize("project", ["", "a/b", "a\0", "x" * 201, "\ud800"])
def test_what_is_no_name_of_a_project_is_refused(project):
    with pytest.raises(InvalidInput) as refused:
        submit(project, [Submission(cmd="true")])
    assert list(refused.value.fields) == ["project"]


# ---- Lists


def test_so_many_commands_make_a_list(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=2/1h/1h"
    commands = submitted(5)
    assert make_lists("default") == 2
    assert [each.commands for each in lists_in("default")] == [tuple(commands[:2]), tuple(commands[2:4])]
    assert commands_in("default", CommandStatus.NEW) == commands[4:]


def test_so_long_a_time_makes_a_list_and_a_list_is_never_longer(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=50/100s/1h"
    submitted(5, expected_duration=40)
    make_lists("default")
    assert [len(each.commands) for each in lists_in("default")] == [2, 2]
    assert len(commands_in("default", CommandStatus.NEW)) == 1


def test_the_age_of_the_oldest_makes_a_list(settings):
    settings.TASKSTORE_COMMAND_LISTS = "slow=50/1h/1h *=50/1h/0s"
    submitted(3)
    submitted(3, project="slow")
    assert make_lists("slow") == 0
    assert make_lists("default") == 1


def test_lists_of_one_second_take_the_next_free_one(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1h/0s"
    first, *_ = submitted(3)
    make_lists("default")
    names = [int(each.name) for each in lists_in("default")]
    assert names == sorted(set(names))
    assert names[0] == first.created


def test_a_command_that_is_late_before_its_first_run_fails(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=50/1h/1h"
    [late] = submitted(1, until=1)
    assert make_lists("default") == 1
    assert commands_in("default", CommandStatus.FAILED_TIME) == [late]
    assert commands_in("default", CommandStatus.NEW) == []


def test_what_is_no_command_is_left_alone_and_told_once(settings, caplog):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1h/0s"
    [odd] = Task.objects.commit(owner=NOBODY, adds=[NewTask(group="commands/default/new", data=b"what?")])
    submitted(2)
    with caplog.at_level(logging.WARNING):
        assert make_lists("default") == 2
        make_lists("default")
    assert len(caplog.records) == 1
    assert Task.objects.find([odd.id]) == [odd]


def test_a_command_with_an_id_that_no_label_can_hold_is_left_alone(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1h/0s"
    for odd in ("x" * 300, "a\0b"):
        data = Command(id=odd, cmd="true", until=1).encode()
        Task.objects.commit(owner=NOBODY, adds=[NewTask(group="commands/default/new", data=data)])
    submitted(1)
    assert make_lists("default") == 1
    assert len(commands_in("default", CommandStatus.NEW)) == 2


def test_a_command_that_no_list_can_hold_does_not_stop_the_rest(settings, caplog):
    settings.TASKSTORE_COMMAND_LISTS, settings.TASKSTORE_MAX_DATA_BYTES = "*=50/1h/0s", 2_000
    [first] = submitted(1)
    size = len(replace(first, cmd="").encode())
    large = replace(first, id="1_0", cmd="x" * (2_000 - size))
    Task.objects.commit(owner=NOBODY, adds=[new_command_task("default", large)])
    [last] = submitted(1)
    while make_lists("default"):
        pass
    assert {command for made in lists_in("default") for command in made.commands} == {first, last}
    assert commands_in("default", CommandStatus.NEW) == [large]
    assert len(caplog.records) == 1


def test_a_late_command_that_no_commit_can_settle_does_not_stop_the_rest(settings, caplog):
    settings.TASKSTORE_COMMAND_LISTS = "*=50/1h/0s"
    odd = Command(id="1_0", cmd="true", until=1, list="x" * 300)
    Task.objects.commit(owner=NOBODY, adds=[NewTask(group="commands/default/new", data=odd.encode())])
    [late], [good] = submitted(1, until=1), submitted(1)
    make_lists("default")
    assert commands_in("default", CommandStatus.FAILED_TIME) == [late]
    assert [made.commands for made in lists_in("default")] == [(good,)]
    assert len(caplog.records) == 1


# ---- What becomes of them


def test_a_closed_list_becomes_what_its_runs_were(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=50/1d/0s"
    good, bad, hopeless = submitted(2) + submitted(1, max_fails=1)
    make_lists("default")
    ran = {good.id: Run(worker="w"), bad.id: Run(worker="w", exit_code=1), hopeless.id: Run(worker="w", exit_code=1)}
    closed = close("default", lambda command: replace(command, run=ran[command.id]))
    assert process_closed("default") == 1
    [done] = commands_in("default", CommandStatus.COMPLETED)
    assert (done.id, done.list) == (good.id, closed.directory)
    assert [each.id for each in commands_in("default", CommandStatus.FAILED_ARCHIVE)] == [bad.id]
    assert [each.id for each in commands_in("default", CommandStatus.NEW)] == [bad.duplicate.id]
    assert [each.id for each in commands_in("default", CommandStatus.FAILED_COUNT)] == [hopeless.id]
    assert lists_in("default", CommandStatus.CLOSED) == []


def test_a_closed_list_that_no_commit_can_settle_does_not_stop_the_rest(settings, caplog):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1d/0s"
    submitted(2)
    make_lists("default")
    close("default", lambda command: replace(command, id="x" * 300))
    close("default", lambda command: replace(command, run=Run(worker="w", exit_code=0)))
    assert process_closed("default") == 1
    assert process_closed("default") == 0
    assert len(caplog.records) == 1


def test_a_list_that_a_worker_holds_is_not_settled(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1d/0s"
    submitted(1)
    make_lists("default")
    [task] = Task.objects.claim(group_of("default", CommandStatus.OPEN), owner=BOB, duration_ms=60_000)
    made = CommandList.decode(bytes(task.data))
    held = Change(id=task.id, group="commands/default/closed", data=made.encode(), timespec_ms=-60_000)
    Task.objects.commit(owner=BOB, updates=[held])
    assert process_closed("default") == 0
