"""Who is to blame when an attempt fails: the command, or the worker. Only the former counts."""

import os
import shutil

import pytest

from taskstore.commands.worker import CommandWorker
from taskstore.types.command_record import Command, CommandList, CommandStatus, group_of
from taskstore.worker.children import NotPrepared
from tests.client.patience import wait_for_last_requests
from tests.jobs.workers import eventually

from .projects import NAME

pytestmark = pytest.mark.once

OPEN = CommandStatus.OPEN


def open_list(project):
    [found] = project.lists(OPEN)
    return found


def test_a_worker_without_its_directory_gives_lists_back_and_stops(project, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    worker = CommandWorker(project.store, [NAME], name="ann", cwd=str(place), wait_ms=100)
    project.add_list("echo a; rmdir ../place", *["echo b"] * 3, name="1000")
    with pytest.raises(
        NotPrepared, match=r"worker ann can't run commands: .*/place: No such file or directory \(3 times in a row"
    ):
        worker.run(until_empty=True)
    wait_for_last_requests()
    [task] = project.tasks(OPEN)
    assert "worker ann can't run commands" in task.error
    assert [(command.fails, command.excused) for command in open_list(project).commands] == [(0, 3), (0, 0), (0, 0)]
    assert [command.run.out.text for command in project.ended()] == ["a\n"]


def test_a_worker_whose_shell_is_gone_is_to_blame(project, tmp_path):
    shell = tmp_path / "shell"
    shutil.copy(os.path.realpath("/bin/sh"), shell)
    project.add_list(f"rm {shell}", "echo b")
    with pytest.raises(NotPrepared, match="No such file"):
        CommandWorker(project.store, [NAME], shell=str(shell), wait_ms=100).run(until_empty=True)
    wait_for_last_requests()
    assert [command.excused for command in open_list(project).commands] == [3]


def test_a_command_is_excused_three_times(project, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    project.add_list("rmdir ../place; exit 3", excused=3)
    with project.worker(cwd=str(place)):
        [command] = project.ended()
    assert command.run.exit_code == 3
    assert command.run.err.text.startswith("ended with 3\nthe worker can't run commands: ")


def test_what_a_lost_worker_had_begun_has_failed(project, tmp_path):
    project.add_list("echo $$ >>pids; sleep 1000", "echo b", max_fails=2)
    with project.worker_process(cwd=str(tmp_path), name="ann") as process:
        assert eventually(lambda: (tmp_path / "pids").exists())
        process.kill()
        with project.worker(name="bob"):
            first, second = project.ended(2)
    assert (first.run.worker, first.run.exit_code) == ("ann", None)
    assert first.run.err.text == "the worker ann was lost while it ran this command\n"
    assert (second.run.worker, second.run.out.text) == ("bob", "b\n")
    settled = {(status, command.id) for status, command in project.settled()}
    assert {(CommandStatus.FAILED_ARCHIVE, "1000_0"), (CommandStatus.NEW, "1000_1")} <= settled


@pytest.mark.parametrize(("losses", "is_counted"), [(3, False), (4, True)])
def test_attempts_of_workers_that_began_nothing_count_from_the_fourth(project, losses, is_counted):
    project.add_list("echo a")
    for _ in range(losses):
        assert eventually(lambda: project.store.claim(group_of(NAME, OPEN), duration_ms=1))
    with project.worker():
        [command] = project.ended()
    assert (command.run.exit_code is None) is is_counted
    assert command.run.failed is is_counted


def test_what_a_stopped_worker_gives_back_is_not_counted(project, tmp_path):
    project.add_list("echo $$ >>pids; sleep 1000")
    for _ in range(5):
        (tmp_path / "pids").unlink(missing_ok=True)
        with project.worker(cwd=str(tmp_path), grace_s=0):
            assert eventually(lambda: (tmp_path / "pids").exists())
    [command] = open_list(project).commands
    assert (command.fails, command.excused, open_list(project).begun) == (0, 0, 0)


def test_a_result_is_stored_when_its_command_ends(project):
    project.add_list("echo a", "sleep 1000")
    with project.worker():
        [command] = project.ended(patience_s=2)
        assert command.run.out.text == "a\n"
        assert [each.id for each in open_list(project).commands] == ["1001_0"]


def test_results_of_quick_commands_are_written_together_and_at_once(project):
    lines = [*[":"] * 60, "sleep 1000"]
    project.add_list(*lines, max_fails=2)
    with project.worker():
        commands = project.ended(60, patience_s=10)
        assert eventually(lambda: open_list(project).begun, 2)
        assert [each.id for each in open_list(project).commands] == ["1060_0"]
    assert all(each.run.exit_code == 0 for each in commands)
    assert len(project.tasks(CommandStatus.CLOSED)) < 20


def test_a_worker_that_dies_among_quick_commands_fails_none(project, tmp_path):
    """Their starts are not recorded, so they run again."""
    project.add_list(*[":"] * 20, *["echo $$ >>pids; sleep 0.1"] * 30, max_fails=2)
    with project.worker_process(cwd=str(tmp_path), name="ann") as process:
        assert eventually(lambda: (tmp_path / "pids").exists())
        process.kill()
    with project.worker(name="bob", cwd=str(tmp_path)):
        commands = project.ended(50)
    assert sorted(each.id for each in commands) == sorted({each.id for each in commands})
    assert all(each.run.exit_code == 0 for each in commands)


def test_quick_commands_that_may_run_once_only_are_recorded_before_ten_at_once(project, tmp_path):
    lines = [":", *["echo $$ >>pids"] * 5, "echo $$ >>pids; sleep 0.2", *["echo $$ >>pids"] * 15]
    project.add_list(*lines, max_fails=1)
    with project.worker_process(cwd=str(tmp_path), name="ann") as process:
        assert eventually(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 6)
        process.kill()
    with project.worker(name="bob", cwd=str(tmp_path)):
        commands = project.ended(22)
    unknown = [place for place, each in enumerate(commands) if each.run.exit_code is None]
    assert 6 in unknown
    assert unknown == list(range(unknown[0], unknown[0] + 10))
    assert {commands[place].run.err.text for place in unknown} == {
        "the worker ann was lost, and it is unknown whether it had started this command\n"
    }
    assert len((tmp_path / "pids").read_text().split()) == 6 + 22 - 1 - unknown[-1]


def test_a_slow_command_among_them_is_recorded_alone(project, tmp_path):
    project.add_list(*[":"] * 3, "echo $$ >>pids; sleep 1000", *[":"] * 3, max_fails=1)
    with project.worker_process(cwd=str(tmp_path), name="ann") as process:
        assert eventually(lambda: (tmp_path / "pids").exists())
        assert eventually(lambda: open_list(project).begun and len(open_list(project).commands) == 4)
        process.kill()
    with project.worker(name="bob", cwd=str(tmp_path)):
        commands = project.ended(7)
    assert [each.run.exit_code for each in commands] == [0, 0, 0, None, 0, 0, 0]
    assert commands[3].run.err.text == "the worker ann was lost while it ran this command\n"


def test_the_store_is_asked_once_for_ten_quick_commands_that_may_run_once_only(project):
    project.add_list(*[":"] * 200, max_fails=1)
    with project.worker():
        project.ended(200)
    assert len(project.tasks(CommandStatus.CLOSED)) < 40


@pytest.mark.parametrize(
    ("left", "begun", "ahead"), [("abcd", 7, 2), ("abd", 7, 1), ("bcd", 7, 1), ("ad", 7, 0), ("d", 0, 0)]
)
def test_of_a_list_with_fewer_commands_it_is_known_which_may_have_been_started(left, begun, ahead):
    commands = tuple(Command(id=name, cmd=":") for name in "abcd")
    made = CommandList(name="1", commands=commands, begun=7, ahead=2)
    rest = made.with_only(tuple(command for command in commands if command.id in left))
    assert (rest.begun, rest.ahead) == (begun, ahead)
