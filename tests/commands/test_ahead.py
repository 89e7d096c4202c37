"""A runner has quick commands before their turn. Each runs once all the same, and those behind a slow one are free."""

from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from taskstore.types.command_record import Command, CommandStatus
from taskstore.types.tasks import Change
from tests.jobs.workers import eventually

from .lines import command
from .projects import NAME

pytestmark = pytest.mark.once

FIRST = 1_000  # The number of the first command of a list.
QUICK = [":"] * 5


def numbers(commands):
    return [int(command.id.partition("_")[0]) - FIRST for command in commands]


def ran(folder):
    return [int(line) for line in (folder / "ran").read_text().split()] if (folder / "ran").exists() else []


def test_each_runs_once_and_in_order_though_others_fail(project, tmp_path):
    lines = [*QUICK, *[f"echo {number} >>ran; exit {int(number % 7 == 0)}" for number in range(5, 80)]]
    project.add_list(*lines, max_fails=2)
    with project.worker(cwd=str(tmp_path)):
        ended = project.ended(80)
    assert ran(tmp_path) == list(range(5, 80))
    assert numbers(ended) == list(range(80))
    assert [number for number in numbers(ended) if ended[number].run.exit_code] == list(range(7, 80, 7))


def test_behind_a_slow_one_they_are_left_to_idle_workers(project, tmp_path):
    slow = "until [ -e go ]; do sleep 0.05; done"
    project.add_list(*QUICK, slow, *[f"echo {number} >>ran" for number in range(6, 30)], max_fails=2)
    with project.worker(cwd=str(tmp_path)), ExitStack() as workers:
        assert eventually(lambda: len(project.ended()) == len(QUICK))
        workers.enter_context(project.worker(project.another(workers), name="bob", cwd=str(tmp_path)))
        assert eventually(lambda: len(ran(tmp_path)) == 24)
        (tmp_path / "go").touch()
        ended = project.ended(30)
    assert sorted(ran(tmp_path)) == list(range(6, 30))
    assert numbers(ended) == list(range(30))
    assert {command.run.worker for command in ended[6:]} == {"bob"}


def test_those_that_are_cancelled_end_and_the_others_run_once(project, tmp_path):
    project.add_list(*QUICK, *[f"echo {number} >>ran; sleep 0.2" for number in range(5, 40)], max_fails=2)
    [made] = project.lists(CommandStatus.OPEN)
    with project.worker(cwd=str(tmp_path)):
        assert eventually(lambda: ran(tmp_path))
        begun = max(ran(tmp_path))
        wanted = [command.id for command, number in zip(made.commands, range(40), strict=True) if number % 2]
        project.store.commands.cancel(NAME, wanted)
        gone = numbers(Command.decode(task.data) for task in project.tasks(CommandStatus.CANCELLED))
        ended = project.ended(40 - len(gone))
    assert len(gone) > 10
    assert sorted([*numbers(ended), *gone]) == list(range(40))
    assert len(ran(tmp_path)) == len(set(ran(tmp_path)))
    assert {*ran(tmp_path)} >= {*numbers(ended)} - {*range(5)}
    # The worker learns of it within half a second.
    assert all(number < begun + 8 for number in {*ran(tmp_path)} & {*gone})


def test_a_worker_that_stops_among_them_gives_the_others_back(project, tmp_path):
    lines = [f"echo {number} >>ran; sleep 0.1; echo {number} >>ended" for number in range(5, 40)]
    project.add_list(*QUICK, *lines, max_fails=2)
    with project.worker(cwd=str(tmp_path), name="ann", grace_s=10):
        assert eventually(lambda: ran(tmp_path))
    assert (tmp_path / "ended").read_text() == (tmp_path / "ran").read_text()  # What had begun has ended.
    with project.worker(cwd=str(tmp_path), name="bob"):
        ended = project.ended(40)
    assert numbers(ended) == list(range(40))
    assert all(command.run.exit_code == 0 for command in ended)
    assert ran(tmp_path) == list(range(5, 40))


def test_one_that_fails_is_recorded_while_the_one_behind_it_runs(project, tmp_path):
    """Whether the worker is to blame is tried beside that."""
    project.add_list(*QUICK, "false", "touch begun; sleep 1000", max_fails=3)
    with project.worker(cwd=str(tmp_path)):
        assert eventually(lambda: (tmp_path / "begun").exists())
        ended = project.ended(len(QUICK) + 1)
        assert [command.run.exit_code for command in ended] == [0, 0, 0, 0, 0, 1]


def test_only_the_one_that_kills_its_runner_is_to_blame(project, tmp_path):
    killer = "echo killer >>ran; kill -9 $PPID"
    project.add_list(*QUICK, *["echo 1 >>ran", killer] * 4, *["false", killer] * 2, "echo 1 >>ran", max_fails=2)
    with project.worker(cwd=str(tmp_path)):
        ended = project.ended(18)
    failed = [command.cmd for command in ended if command.run.failed]
    assert sorted(failed) == sorted([killer] * 6 + ["false"] * 2)
    assert (tmp_path / "ran").read_text().split().count("1") == 5


def test_behind_a_slow_one_that_may_run_once_only_others_are_free(project, tmp_path):
    project.add_list(*QUICK, "until [ -e go ]; do sleep 0.05; done", max_fails=1)
    [task] = project.tasks(CommandStatus.OPEN)
    made = project.lists(CommandStatus.OPEN)[0]
    others = [command(f"echo {number} >>ran", FIRST + number, max_fails=3) for number in range(6, 12)]
    more = replace(made, commands=(*made.commands, *others))
    project.store.commit(updates=[Change(id=task.id, data=more.encode())])
    with project.worker(cwd=str(tmp_path)), ExitStack() as workers:
        assert eventually(lambda: len(project.ended()) == len(QUICK))
        workers.enter_context(project.worker(project.another(workers), name="bob", cwd=str(tmp_path)))
        assert eventually(lambda: len(ran(tmp_path)) == 6)
        (tmp_path / "go").touch()
        ended = project.ended(12)
    assert {each.run.worker for each in ended[6:]} == {"bob"}
