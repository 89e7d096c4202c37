"""Run checks in processes, one after the other or in parallel."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import PROJECT

NO_TEST_RAN = 5  # pytest's exit code.
GOODBYE_SECONDS = 30
AT_ONCE = 4  # Keeps two cores busy, without slowing tests down so much that they time out.
# The user's settings that are meant for the tests; all others must not influence them.
KEPT = ("TASKSTORE_TEST_POSTGRES_URL", "TASKSTORE_CHROMIUM", "TASKSTORE_ENVIRONMENT")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process: pytest on one database, or the gates."""

    name: str  # For the summary.
    module: str  # That does it, with its arguments.
    arguments: Sequence[str] = ()
    url: str = ""  # Of the database; empty: the SQLite file in the data directory.
    folder: Path

    @property
    def file_name(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)

    @property
    def output_file(self) -> Path:
        return self.folder / f"{self.file_name}.output"

    def announce(self) -> None:
        print(f"\n== {self.name}: {self.module} {' '.join(self.arguments)}".rstrip(), flush=True)

    @contextmanager
    def started(self, **files: Any) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", self.module, *self.arguments]
        environment = {**clean_environment(self.folder / self.file_name), "DATABASE_URL": self.url}
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, text=True, **files)
        try:
            yield process
        finally:
            end(process)


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    run: Run
    exit_code: int
    seconds: float
    output: str = ""

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    @property
    def ran_nothing(self) -> bool:
        return self.exit_code == NO_TEST_RAN

    @property
    def line(self) -> str:
        """The line of the summary: `sqlite: passed in 12 s`, with pytest's last line if it was captured."""
        verdict = "passed" if self.passed else "no test ran" if self.ran_nothing else "FAILED"
        closing = self.output.strip().rpartition("\n")[2].strip("= ")
        return f"{self.run.name}: {verdict} in {self.seconds:.0f} s" + (f" ({closing})" if closing else "")


def run_here(run: Run) -> SuiteResult:
    """Run with the terminal attached, so that a debugger works."""
    run.announce()
    started = time.monotonic()
    with run.started() as process:
        exit_code = process.wait()
    return SuiteResult(run=run, exit_code=exit_code, seconds=time.monotonic() - started)


def run_side_by_side(*runs: Run, at_once: int = AT_ONCE) -> list[SuiteResult]:
    """Run several suites in parallel, started in this order, and print their outputs one after the other."""
    with ExitStack() as stack:
        crowd = Crowd(runs, at_once, stack)
        return [crowd.follow(run) for run in runs]


class Crowd:
    """Runs of which only some are in progress at once; these are ended with the stack."""

    def __init__(self, runs: Sequence[Run], at_once: int, stack: ExitStack) -> None:
        self._waiting = deque(runs)
        self._at_once = at_once
        self._stack = stack
        self._under_way: dict[str, tuple[subprocess.Popen[str], float]] = {}  # By its name, and since when.
        self._ended: dict[str, tuple[int, float]] = {}  # The exit code, and after how many seconds.

    def follow(self, run: Run) -> SuiteResult:
        """Print the output of a run until it ends. Call it in the order of the runs."""
        self._look()
        run.announce()
        pieces = []
        with run.output_file.open(errors="replace") as output:
            while True:
                # Check before reading, so that the last output is read too.
                ended = self._ended.get(run.name)
                pieces.append(output.read())
                print(pieces[-1], end="", flush=True)
                if ended:
                    exit_code, seconds = ended
                    return SuiteResult(run=run, exit_code=exit_code, seconds=seconds, output="".join(pieces))
                time.sleep(0.1)
                self._look()

    def _look(self) -> None:
        """Start further runs in place of those that have ended."""
        for name, (process, since) in [*self._under_way.items()]:
            if process.poll() is not None:
                self._ended[name] = process.returncode, time.monotonic() - since
                del self._under_way[name]
        while self._waiting and len(self._under_way) < self._at_once:
            run = self._waiting.popleft()
            self._under_way[run.name] = self._stack.enter_context(caught(run)), time.monotonic()


@contextmanager
def caught(run: Run) -> Iterator[subprocess.Popen[str]]:
    with (
        run.output_file.open("w") as output,
        run.started(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        yield process


def end(process: subprocess.Popen[str]) -> None:
    """Give an interrupted run time to stop its servers and databases."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def clean_environment(data: Path) -> dict[str, str]:
    """Return the environment of gates and tests: default settings and a separate data directory."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("TASKSTORE_")}
    for name in ("DATABASE_URL", "DATABASE_PASSWORD_FILE"):
        kept.pop(name, None)
    # Cache bytecode, because the tests start hundreds of processes that import the same modules.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "TASKSTORE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "taskstore_project.settings"}
