"""No worker is idle while commands wait, and no command is in two lists."""

import signal
import time
from contextlib import ExitStack

import pytest

from taskstore.types.command_record import CommandStatus
from tests.jobs.workers import eventually

from .projects import Project

pytestmark = pytest.mark.once

OPEN = CommandStatus.OPEN


def listed(project: Project) -> list[list[str]]:
    """The commands of the lists that are open or running."""
    return sorted([each.id for each in found.commands] for found in project.lists(OPEN))


def test_idle_workers_get_equal_shares(project, tmp_path):
    """The list has all names, and each command waits for those of the other workers."""
    at_once = "touch $$; until [ $(ls | wc -l) -ge {} ]; do sleep 0.05; done; exit 0"
    project.add_list(*[at_once.format(number) for number in (4, 4, 4, 4)])
    with ExitStack() as workers:
        for name in ("ann", "bob", "eve", "joe"):
            store = project.another(workers)
            workers.enter_context(project.worker(store, name=name, cwd=str(tmp_path)))
        ended = project.ended(4)
    assert sorted(command.run.worker for command in ended) == ["ann", "bob", "eve", "joe"]


def test_a_worker_that_becomes_idle_gets_a_part_of_a_running_list(project):
    project.add_list("sleep 1000", *["true"] * 5)
    with project.worker(name="ann"):
        assert eventually(project.live)
        with ExitStack() as workers:
            workers.enter_context(project.worker(project.another(workers), name="bob"))
            ended = project.ended(3)
            assert {command.run.worker for command in ended} == {"bob"}
            assert eventually(lambda: listed(project) == [["1000_0", "1001_0", "1002_0"]] or len(project.ended()) == 5)


def test_an_owner_that_is_stopped_splits_nothing_and_loses_nothing(project, tmp_path):
    """It goes on when another worker has its list, and its split is refused."""
    project.add_list("echo $$ >>pids; sleep 1000", *["echo $$ >>pids; true"] * 4, max_fails=2)
    with project.worker_process(cwd=str(tmp_path), least_lease_s=6, name="ann") as owner, ExitStack() as workers:
        assert eventually(lambda: (tmp_path / "pids").exists())
        owner.send_signal(signal.SIGSTOP)
        workers.enter_context(project.worker(project.another(workers), name="bob", cwd=str(tmp_path)))
        time.sleep(2)
        assert listed(project) == [[f"{1000 + number}_0" for number in range(5)]]
        ended = project.ended(5)
        assert [command.run.worker for command in ended] == ["ann", *["bob"] * 4]
        assert ended[0].run.err.text == "the worker ann was lost while it ran this command\n"
        owner.send_signal(signal.SIGCONT)
        time.sleep(3)
        assert len(project.ended(5)) == 5
        assert listed(project) == []
