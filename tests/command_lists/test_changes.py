"""What people do to commands: park them, run them again, put them away, reopen a list."""

import pytest
from msgspec.structs import replace

from tasks_app.commands import make_lists, process_closed, retry, stash, unstash
from tasks_app.commands.bundling import delete_leftovers
from tasks_app.commands.changes import archive_old
from tasks_app.models import Task
from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.command_record import Command, CommandList, CommandStatus, Run, group_of, new_command_task
from taskstore.types.tasks import NOBODY, NewTask

from .commands import BOB, close, commands_in, lists_in, submitted
from .stages import running_list

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def lists_at_once(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=50/1d/0s"


def put(status: CommandStatus, *commands: Command) -> list[int]:
    tasks = Task.objects.commit(owner=NOBODY, adds=[new_command_task("default", each, status) for each in commands])
    return [task.id for task in tasks]


def a_command(number: int = 1, **more) -> Command:
    return Command(id=f"{number}_0", cmd="true", created=100, until=160, max_fails=3, **more)


def test_stashed_commands_and_lists_wait_until_they_are_unstashed():
    submitted(2)
    make_lists("default")
    submitted(3)
    assert stash("default") == 4
    assert make_lists("default") == 0
    assert not Task.objects.claim(group_of("default", CommandStatus.OPEN), owner=BOB)
    assert len(lists_in("default", CommandStatus.OPEN_STASHED)) == 1
    assert unstash("default") == 4
    assert make_lists("default") == 1
    assert len(lists_in("default")) == 2


def test_a_running_list_is_stashed_by_its_id_alone():
    task, made = running_list()
    assert stash("default") == 0
    assert stash("default", [task.id]) == 1
    [stashed] = Task.objects.group(group_of("default", CommandStatus.OPEN_STASHED))
    assert (stashed.origin, stashed.owner, CommandList.decode(bytes(stashed.data)).commands) == (
        task.origin, 0, made.commands,
    )  # fmt: skip
    with pytest.raises(CommitRefused):
        Task.objects.commit(owner=BOB, deletes=[task.id])


def test_what_failed_is_retried_as_new_and_never_failed():
    failed = a_command(fails=2, run=Run(worker="w", exit_code=1), list="100_w_1_2")
    put(CommandStatus.FAILED_COUNT, failed)
    put(CommandStatus.FAILED_TIME, a_command(2))
    put(CommandStatus.COMPLETED, a_command(3))
    assert retry("default") == 2
    first, _ = commands_in("default", CommandStatus.NEW)
    assert (first.fails, first.run, first.list, first.cmd) == (0, None, "", failed.cmd)
    assert first.id not in (failed.id, failed.first_id)
    assert first.until - first.created == 60
    assert commands_in("default", CommandStatus.FAILED_ARCHIVE) == [failed, a_command(2)]
    assert len(commands_in("default", CommandStatus.COMPLETED)) == 1


def test_what_is_not_finished_is_not_retried():
    with pytest.raises(InvalidInput, match="status"):
        retry("default", status=CommandStatus.OPEN)


def test_completed_commands_are_archived_after_a_week(monkeypatch):
    put(CommandStatus.COMPLETED, a_command())
    assert archive_old("default") == 0
    now_ms = Task.objects.now_ms()
    monkeypatch.setattr(type(Task.objects), "now_ms", lambda _: now_ms + 7 * 86_400_000)
    assert archive_old("default") == 1


def test_outputs_that_dead_workers_left_are_deleted():
    submitted(1)
    make_lists("default")
    [held] = Task.objects.claim(group_of("default", CommandStatus.OPEN), owner=BOB)
    origin = str(held.origin)
    adds = [NewTask(group="commands/default/output", labels={"list": each}) for each in (origin, "1")]
    Task.objects.commit(owner=BOB, adds=adds)
    assert delete_leftovers("default") == 1
    [kept] = Task.objects.group("commands/default/output")
    assert kept.labels["list"] == origin


def test_a_duplicate_that_failed_is_counted_on(settings):
    submitted(1, max_fails=3)
    for fails in range(3):
        make_lists("default")
        close("default", lambda command: replace(command, run=Run(worker="w", exit_code=1)))
        process_closed("default")
        assert len(commands_in("default", CommandStatus.FAILED_ARCHIVE)) == min(fails + 1, 2)
    [failed] = commands_in("default", CommandStatus.FAILED_COUNT)
    assert (failed.fails, failed.id.rpartition("_")[2]) == (2, "2")
