"""Processes that check something, alone or side by side."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import PROJECT

NO_TEST_RAN = 5  # pytest's exit code.
GOODBYE_SECONDS = 30
# Of the user's own settings, what is meant for the tests; the others must not change what they see.
KEPT = ("TASKSTORE_TEST_POSTGRES_URL", "TASKSTORE_CHROMIUM", "TASKSTORE_ENVIRONMENT")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process: pytest on one database, or the gates."""

    name: str  # For the summary.
    module: str  # That does it, with its arguments.
    arguments: Sequence[str] = ()
    url: str = ""  # Of the database; empty: the SQLite file in the data folder.
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
        """For the summary: `sqlite: passed in 12 s`, with pytest's own closing line where it was caught."""
        verdict = "passed" if self.passed else "no test ran" if self.ran_nothing else "FAILED"
        closing = self.output.strip().rpartition("\n")[2].strip("= ")
        return f"{self.run.name}: {verdict} in {self.seconds:.0f} s" + (f" ({closing})" if closing else "")


def run_here(run: Run) -> SuiteResult:
    """One run with the terminal for itself, so that a debugger works in it."""
    run.announce()
    started = time.monotonic()
    with run.started() as process:
        exit_code = process.wait()
    return SuiteResult(run=run, exit_code=exit_code, seconds=time.monotonic() - started)


def run_side_by_side(*runs: Run) -> list[SuiteResult]:
    """Several runs at the same time, their output one after the other."""
    started = time.monotonic()
    outcomes = []
    with ExitStack() as stack:
        for run, process in [(run, stack.enter_context(caught(run))) for run in runs]:
            run.announce()
            output = follow(process, run.output_file)
            seconds = time.monotonic() - started
            outcomes.append(SuiteResult(run=run, exit_code=process.returncode, seconds=seconds, output=output))
    return outcomes


@contextmanager
def caught(run: Run) -> Iterator[subprocess.Popen[str]]:
    with (
        run.output_file.open("w") as output,
        run.started(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        yield process


def follow(process: subprocess.Popen[str], file: Path) -> str:
    """Print what the process writes until it ends; return all of it."""
    pieces = []
    with file.open(errors="replace") as output:
        while True:
            # Asked before reading, so that what it writes last is read too.
            has_ended = process.poll() is not None
            pieces.append(output.read())
            print(pieces[-1], end="", flush=True)
            if has_ended:
                return "".join(pieces)
            time.sleep(0.1)


def end(process: subprocess.Popen[str]) -> None:
    """Let an interrupted run put its servers and databases away, but not for ever."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def clean_environment(data: Path) -> dict[str, str]:
    """The environment of gates and tests: every setting at its default, and a data folder of their own."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("TASKSTORE_")}
    for name in ("DATABASE_URL", "DATABASE_PASSWORD_FILE"):
        kept.pop(name, None)
    # The tests start hundreds of processes: most of their time would go into compiling the same modules.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "TASKSTORE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "taskstore_project.settings"}
