"""A worker that is a process of its own: stopped, killed, and with processes for its functions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lab.testing import PROJECT
from lab.testing.processes import signal_all
from taskstore import Client, CommitRefused, Task, Worker
from taskstore.worker.children import NotPrepared
from tests.served import Served

from .fakes import FakeStore
from .patience import PATIENCE_S, wait_for

pytestmark = pytest.mark.once

MAILER = Path(__file__).parent / "mailer.py"


class Mailer:
    """The process of the program, and what it writes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hears(self) -> str:
        """The next line that it writes."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def begins(self) -> int:
        """Which process works on a task now."""
        verb, pid = self.hears().split()
        assert verb in ("sending", "watching")
        return int(pid)

    def ends(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def mailer(
    served: Served,
    token: str,
    *,
    lease_ms: int = 60_000,
    grace_s: float = 30,
    processes: int = 0,
    program: Path = MAILER,
) -> Iterator[Mailer]:
    options = map(str, (lease_ms, grace_s, processes))
    command = [sys.executable, str(program), served.url, token, *options]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Mailer(process)
        finally:
            process.kill()


def is_gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_the_task_of_a_killed_worker_is_another_ones_soon(served, store, token):
    added = store.add("mail", "60")
    with mailer(served, token, lease_ms=500) as killed:
        killed.begins()
        killed.process.kill()
        [task] = store.claim("mail", wait_ms=PATIENCE_S * 1_000)
    assert (task.origin, task.claims) == (added.id, 2)


def test_sigterm_lets_it_finish_what_it_has_begun(served, store, token):
    store.add("mail", "0.5", priority=1)
    store.add("mail", "60")
    with mailer(served, token) as stopped:
        assert stopped.begins() == stopped.process.pid
        stopped.process.send_signal(signal.SIGTERM)
        assert stopped.ends() == 0
    assert [task.text for task in store.group("sent", owned=True)] == [str(stopped.process.pid)]
    [given_back] = store.group("mail")
    assert (given_back.text, given_back.owner) == ("60", 0)


def test_a_second_signal_ends_it_at_once(served, store, token):
    store.add("mail", "60")
    with mailer(served, token) as stopped:
        stopped.begins()
        stopped.process.send_signal(signal.SIGTERM)
        stopped.process.send_signal(signal.SIGINT)
        assert stopped.ends() in (128 + signal.SIGTERM, 128 + signal.SIGINT)  # They may come in either order.


def test_functions_in_processes(served, store, token):
    added = [store.add("fatal"), store.add("unsendable")]
    with mailer(served, token, lease_ms=2_000, grace_s=0.1, processes=1) as working:
        wait_for(lambda: len(failed(store)) == 2, "the end of both")
        assert {task.origin: task.error for task in failed(store)} == {
            added[0].id: "ProcessDied: its process ended with code 3 before the function returned",
            added[1].id: "TypeError: cannot pickle 'generator' object",
        }
        store.add("watched")
        child = working.begins()
        wait_for(lambda: is_taken_away(store), "a deletion between two renewals")
        assert working.hears() == "told True"
        store.add("mail", "60")
        assert working.begins() == child != working.process.pid
        working.process.send_signal(signal.SIGTERM)
        assert working.ends() == 0
    assert is_gone(child)
    assert [task.owner for task in store.group("mail")] == [0]


def failed(store: Client) -> list[Task]:
    return [*store.group("fatal/failed"), *store.group("unsendable/failed")]


def is_taken_away(store: Client) -> bool:
    [task] = store.group("watched", owned=True)
    try:
        store.commit(deletes=[task.id], client_id=task.owner)
    except CommitRefused:
        return False
    return True


@pytest.mark.parametrize("processes", [0, 1])
def test_a_signal_to_all_processes_is_a_stop_of_the_worker(served, store, token, processes):
    store.add("program")
    with mailer(served, token, processes=processes) as stopped:
        stopped.begins()
        signal_all(stopped.process.pid, signal.SIGTERM)
        assert stopped.ends() == 0
    [given_back] = store.group("program")
    assert (given_back.owner, given_back.error, dict(given_back.labels)) == (0, "", {})


def test_processes_end_with_their_worker(served, store, token):
    store.add("mail", "60")
    with mailer(served, token, processes=1) as killed:
        child = killed.begins()
        killed.process.kill()
        wait_for(lambda: is_gone(child), "the end of the process")


def test_processes_that_can_not_start_end_it(served, token, tmp_path):
    worker = Worker(FakeStore(), processes=1)
    worker.handle("mail")(lambda task: None)
    with pytest.raises(NotPrepared, match="must belong to a module"):
        worker.run()
    unguarded = tmp_path / "unguarded.py"
    unguarded.write_text(MAILER.read_text().replace('if __name__ == "__main__":', "if True:"))
    with mailer(served, token, processes=1, program=unguarded) as broken:
        assert broken.ends() == 1
