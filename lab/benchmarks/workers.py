"""What workers do with empty tasks: how many a second, at what cost, and how soon an idle one starts.

Each worker is a program with packages of its own. The rate is from the first task that is done to the last, by what
the database says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.testing import PROJECT
from lab.testing.processes import kill_family
from taskstore_project import bootstrap

from . import CannotMeasure
from .clients.client import used_s
from .contenders import Program
from .figures import Figures, percentile
from .measuring import Entry
from .pace import Pace
from .places import Place

PROGRAMS = Path(__file__).parent / "programs"
OLDEST = (3, 12)  # Python for the peers.
LOOK_EVERY_S, PATIENCE_S = 0.1, 120
NOTHING = ":"  # As quick as a command line can be.


def workers(entry: Entry, place: Place, pace: Pace) -> Figures:
    """Add tasks, start the workers, and look on until all are done."""
    program, at_once = place.contender.program, entry.load.clients
    if program is None:
        raise CannotMeasure("this contender has no worker")
    tasks = pace.jobs * program.share
    if not (program.left or program.done):
        return {"per_second": _xargs(tasks, at_once)}
    with TemporaryDirectory() as folder:
        scene = _Scene(program, place, at_once, Path(folder) / "started")
        if not place.is_prepared:
            place.is_prepared = True
            scene.do("prepare")
        before = scene.done(0)
        scene.do("add", tasks)
        with scene.working() as processes:
            found = scene.rate(processes, before, tasks)
            return {**found, **scene.starts(pace.job_wakeups if program.wakes else 0)}


def _xargs(tasks: int, at_once: int) -> float:
    """Return how many shells a second this machine starts."""
    began_s = time.monotonic()
    subprocess.run(["xargs", f"-P{at_once}", "-n1", "sh", "-c"], input=f"{NOTHING}\n".encode() * tasks, check=True)
    return tasks / (time.monotonic() - began_s)


class _Scene:
    """One measurement of one worker. `started`: the file into which it writes how long tasks took to start."""

    def __init__(self, program: Program, place: Place, at_once: int, started: Path) -> None:
        self._program, self._place, self._at_once, self._started = program, place, at_once, started
        self._python = interpreter_with(program.packages) if program.packages else sys.executable

    def do(self, what: str, number: int = 1) -> None:
        """Have the program prepare, or add tasks."""
        done = subprocess.run(
            self._of_module(), env=self._variables(what, number), cwd=PROGRAMS, capture_output=True, check=False
        )
        if done.returncode:
            raise CannotMeasure(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])

    def done(self, added: int) -> int:
        """Return how many tasks are done, of this number if the tasks themselves say nothing."""
        if self._program.done:
            return self._place.storage.number(self._program.done)
        return added - self._place.storage.number(self._program.left)

    @contextmanager
    def working(self) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
        """Start the workers, and end them with the block."""
        program = self._program
        command = [*self._in_store(*program.command)] if program.command else self._of_module()
        command = [word.replace("{at_once}", str(self._at_once)) for word in command]
        number = self._at_once if program.has_process_each else 1
        log = (self._started.parent / "log").open("ab")
        started = [
            subprocess.Popen(
                command,
                env=self._variables("work", self._at_once),
                cwd=PROGRAMS,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for _ in range(number)
        ]
        try:
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    kill_family(process)
            log.close()

    def rate(self, processes: Sequence[subprocess.Popen[bytes]], before: int, tasks: int) -> dict[str, float]:
        """Return the rate from the first task that is done to the last, and the processor time of each."""
        first, began_s = self._wait_until(before + 1, tasks)
        used = self._used(processes)
        last, ended_s = self._wait_until(before + tasks, tasks)
        if last != before + tasks:
            raise CannotMeasure(f"of {tasks} tasks {last - before} are done")
        found = {"per_second": (last - first) / max(ended_s - began_s, LOOK_EVERY_S)}
        after = self._used(processes)
        return found | {f"{name}_us": (after[name] - used[name]) / (last - first) * 1e6 for name in used}

    def starts(self, times: int) -> dict[str, float]:
        """Return how long it takes from adding a task to its function, when the worker had nothing to do."""
        if not times:
            return {}
        self.do("wake", times)
        wait_until(lambda: len(self._lines()) >= times and not self.done(0))  # Nothing is left for the next round.
        took_ms = [float(line) * 1_000 for line in self._lines()]
        return {f"p{percent}_ms": percentile(took_ms, percent) for percent in (50, 95)}

    def _lines(self) -> list[str]:
        return self._started.read_text().split() if self._started.exists() else []

    def _wait_until(self, wanted: int, tasks: int) -> tuple[int, float]:
        found = 0

        def look() -> bool:
            nonlocal found
            found = self.done(tasks)
            return found >= wanted

        wait_until(look)
        return found, time.monotonic()

    def _used(self, processes: Sequence[subprocess.Popen[bytes]]) -> dict[str, float]:
        """Return the processor time so far, in seconds."""
        strangers = self._place.storage.strangers()
        used = {name: used_s(pid, strangers) for name, pid in self._place.pids().items()}
        return {"worker": sum(used_s(each.pid, ()) for each in processes), **used}

    def _of_module(self) -> list[str]:
        return [str(self._python), "-c", f"import {self._program.module}"]

    def _in_store(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "taskstore_project", *words]

    def _variables(self, do: str = "", number: int = 1) -> Mapping[str, str]:
        address, server = self._place.storage.url, {}
        if one := self._place.server:
            server, address = {"TASKSTORE_URL": one.url, "TASKSTORE_TOKEN": one.token}, one.url
        own = {"ADDRESS": address, "DO": do, "NUMBER": str(number), "STARTED": str(self._started)}
        path = [str(PROGRAMS), *([] if self._program.packages else [str(self._place.checkout)])]
        return {**self._place.environment, **server, **own, "PYTHONPATH": os.pathsep.join(path)}


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise CannotMeasure(f"the workers did not get on within {PATIENCE_S} s")
        time.sleep(LOOK_EVERY_S)


@cache
def interpreter_with(packages: Sequence[str]) -> Path:
    """Return a Python with these packages, in an environment of its own. Raises CannotMeasure."""
    python = next(iter(bootstrap.interpreters()), None)
    if python is None or tuple(map(int, bootstrap.version_of(python).split("."))) < OLDEST:
        raise CannotMeasure(f"this worker needs Python {'.'.join(map(str, OLDEST))} or later")
    name = "-".join(package.partition("[")[0] for package in packages)
    environment = bootstrap.Environment(PROJECT / f".venv-{name}")
    if not environment.exists():
        bootstrap.run([str(python), "-m", "venv", str(environment.folder)])
        bootstrap.run([str(environment.python), "-m", "pip", "install", "--quiet", *packages])
    return environment.python
