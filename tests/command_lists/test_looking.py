"""Looks at commands, lists and projects, as they are on their way."""

from typing import Any

import pytest
from msgspec.structs import replace

from tasks_app.commands import looking, make_lists, process_closed
from tasks_app.commands.looking import lists, overview, results, status
from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from taskstore.errors import InvalidInput
from taskstore.types.command_record import Command, CommandStatus, NotACommand, Output, group_of
from taskstore.types.tasks import NOBODY, NewTask

from .commands import BOB, close, lists_in, submitted
from .stages import claimed, heard, run, writes

pytestmark = pytest.mark.django_db(transaction=True)

AT_ONCE = "*=2/1d/0s"  # Two commands a list, whatever their age.
A, B = GroupScope(("commands/a/*",)), GroupScope(("commands/b/*",))


@pytest.fixture(autouse=True)
def two_a_list(settings):
    settings.TASKSTORE_COMMAND_LISTS = AT_ONCE


def finished(number=2, project="default", **ran) -> list[Command]:
    """Commands that were run, all alike."""
    made = submitted(number, project)
    make_lists(project)
    for _ in range(0, number, 2):
        close(project, lambda each: replace(each, run=run(**ran)))
    while process_closed(project):
        pass
    return made


def command(*asked: Any) -> Any:
    """The command, or None."""
    return looking.command(*asked)


def command_list(*asked: Any) -> Any:
    """The list, or None."""
    return looking.command_list(*asked)


def page_output() -> Output:
    """What the newest result of the page has of the output."""
    run = results("default").commands[0].run
    assert run
    return run.out


def nonzero(counts):
    return {status: count for status, count in counts.items() if count}


# ---- Status


@pytest.mark.parametrize("project", ["", "a/b", "x" * 201])
def test_what_is_no_project_is_refused_by_name(project):
    for look in (status, lists, results, lambda name: command(name, "1_0")):
        with pytest.raises(InvalidInput) as refused:
            look(project)
        assert list(refused.value.fields) == ["project"]


def test_commands_in_lists_are_counted_as_what_their_list_is():
    finished(2)
    submitted(6)
    make_lists("default")
    claimed()
    submitted(1)
    seen = status("default")
    assert nonzero(seen.counts) == {
        CommandStatus.COMPLETED: 2,
        CommandStatus.RUNNING: 2,
        CommandStatus.OPEN: 4,
        CommandStatus.NEW: 1,
    }
    assert nonzero(seen.lists) == {CommandStatus.RUNNING: 1, CommandStatus.OPEN: 2}


def test_a_list_that_somebody_added_by_hand_is_counted_too():
    commands = submitted(2)
    make_lists("default")
    [made] = lists_in("default")
    by_hand = NewTask(group=group_of("default", CommandStatus.OPEN), data=replace(made, name="7").encode())
    odd = NewTask(group=group_of("default", CommandStatus.OPEN), data=b"what?")
    Task.objects.commit(owner=NOBODY, adds=[by_hand, odd])
    seen = status("default")
    assert seen.counts[CommandStatus.OPEN] == 2 * len(commands)
    assert sorted(each.commands for each in lists("default").lists) == [0, 2, 2]


def test_running_lists_tell_their_worker_and_the_time_left():
    submitted(2)
    make_lists("default")
    task = claimed()
    heard()
    task = writes(task, lists_in("default")[0], 1)
    [seen] = status("default").running
    assert (seen.task, seen.worker, seen.owner, seen.commands, seen.done) == (task.id, "bob", BOB, 2, 1)
    assert 0 < seen.left_ms <= 60_000
    assert seen.started_ms == task.leased_since_ms


def test_the_forecast_is_the_time_of_the_rest_over_the_workers():
    finished(2, duration_ms=2_000)
    submitted(6)
    assert status("default").forecast_s is None
    heard()
    assert status("default").forecast_s == pytest.approx(12)
    heard(owner=3)
    heard(owner=4, project="other")
    assert status("default").forecast_s == pytest.approx(6)


def test_an_overview_has_every_project():
    submitted(3, "b")
    finished(2, "a")
    submitted(2, "a")
    make_lists("a")
    a, b = overview()
    assert (a.project, nonzero(a.counts), nonzero(a.lists)) == (
        "a",
        {CommandStatus.COMPLETED: 2, CommandStatus.OPEN: 2},
        {CommandStatus.OPEN: 1},
    )
    assert (b.project, nonzero(b.counts), nonzero(b.lists)) == ("b", {CommandStatus.NEW: 3}, {})


def test_a_scope_hides_what_it_does_not_allow():
    [made, _] = finished(2, "a")
    submitted(2, "a")
    make_lists("a")
    [seen] = lists("a").lists
    assert overview(B) == []
    assert status("a", B).is_empty
    assert status("a", B).durations.count == 0
    assert lists("a", scope=B).lists == ()
    assert results("a", scope=B).commands == ()
    assert command_list(seen.task, B) is None
    assert command("a", made.id, B) is None
    assert command_list(seen.task, A)
    assert command("a", made.id, A)


# ---- Lists


def test_a_list_is_found_by_its_first_id_while_it_lasts():
    commands = submitted(2)
    make_lists("default")
    [seen] = lists("default").lists
    task = claimed()
    task = writes(task, lists_in("default")[0])
    for task_id in (seen.task, task.id):
        whole = command_list(task_id)
        assert (whole.project, whole.list.task, whole.list.status) == ("default", task.id, CommandStatus.RUNNING)
        assert list(whole.commands) == commands
        assert [each.out.text for each in whole.live] == ["so far"]


def test_what_is_no_list_is_not_found():
    submitted(1)
    [odd] = Task.objects.commit(owner=NOBODY, adds=[NewTask(group="commands/default/open", data=b"what?")])
    [new] = Task.objects.group(group_of("default", CommandStatus.NEW))
    for task_id in (odd.id, new.id, 99_999):
        assert command_list(task_id) is None


# ---- Results


def test_a_search_finds_what_was_written_and_where_it_stood(monkeypatch):
    finished(2, out=b"Fine")
    [made, _] = finished(2, err=b"Disk is FULL")
    finished(2)
    assert len(results("default", text="disk is full").commands) == 2
    assert len(results("default", text="fine", status=CommandStatus.COMPLETED).commands) == 2
    assert [each.id for each in results("default", text=made.id).commands] == [made.id]
    assert results("default", text="nothing like it").commands == ()


def test_a_page_has_the_beginning_of_what_was_written():
    [made, _] = finished(2, out="ä".encode() * 5_000)
    assert not results("default").commands[0].is_whole
    out = page_output()
    assert out.text == "ä" * (len(out.text))
    assert out.cut_at + out.missing == 10_000
    whole = command("default", made.id).newest
    assert (whole.is_whole, len(whole.run.out.kept)) == (True, 10_000)


def test_bytes_that_are_no_text_stay_what_they_are():
    finished(2, out=b"\xff" * 5_000)
    out = page_output()
    assert (out.kept, out.missing) == (b"\xff" * out.cut_at, 5_000 - out.cut_at)


def test_what_is_no_command_is_left_out():
    made = finished(2)
    Task.objects.commit(owner=NOBODY, adds=[NewTask(group=group_of("default", CommandStatus.COMPLETED), data=b"{}")])
    assert len(results("default").commands) == len(made)
    with pytest.raises(NotACommand):
        Command.decode(b"{}")


# ---- One command


def test_a_command_is_found_wherever_it_is():
    [made, _] = submitted(2)
    assert command("default", made.id).newest.status is CommandStatus.NEW
    make_lists("default")
    assert command("default", made.id).newest.status is CommandStatus.OPEN
    task = claimed()
    seen = command("default", made.first_id)
    assert (seen.newest.status, seen.newest.task, seen.tail) == (CommandStatus.RUNNING, task.id, None)
    writes(task, lists_in("default")[0])
    assert command("default", made.id).tail.out.text == "so far"
    assert command("other", made.id) is None
    assert command("default", "17_0") is None


def test_a_command_has_its_earlier_runs():
    [made, _] = finished(2, failed=True)
    make_lists("default")
    seen = command("default", made.id)
    assert (seen.newest.id, seen.newest.status) == (made.duplicate.id, CommandStatus.OPEN)
    assert [each.id for each in seen.earlier] == [made.id]
    for _ in range(2):
        close("default", lambda each: replace(each, run=run(failed=True)))
        process_closed("default")
        make_lists("default")
    seen = command("default", made.first_id)
    assert (seen.newest.status, seen.newest.fails) == (CommandStatus.FAILED_COUNT, 2)
    assert [each.fails for each in seen.earlier] == [1, 0]
