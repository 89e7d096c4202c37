"""The runs of `manage.py test`: several processes at once."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from threading import Lock

from . import PROJECT, CannotTry
from .environment import clean_environment
from .postgresql import POSTGRESQL, SQLITE, addresses
from .processes import cpu_s
from .pythons import Python, oldest_and_newest

# Two sessions at once keep two cores busy: many tests wait. SQLite has more tests, those of the browser among them.
PROCESSES = {SQLITE: "3", POSTGRESQL: "2"}
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0")
# Marks, then files: the tests that another version of Python or Django may break, for the other pair on a database.
# On SQLite only those marked `once`: PostgreSQL's own tests run the others with that pair.
PORTABILITY = {
    SQLITE: (
        "once and not stress",
        "client/test_breaking.py",
        "client/test_worker.py",
        "commands/test_worker.py",
        "jobs",
        "task_framework",
    ),
    POSTGRESQL: ("not stress", "writer", "server/test_serve.py"),
}
NO_TEST_RAN = 5  # pytest's exit code.
GOODBYE_SECONDS = 30
LOOK_EVERY_S = 0.1


class Length(IntEnum):
    QUICK = 1  # Without the tests that need a browser or many processes, and with one Python.
    USUAL = 2
    LANDING = 3  # Also a part of the tests with the other Python, and short fault tests.
    ALL = 4  # Each database with each Python, and the long tests and fault tests.


@dataclass(frozen=True, kw_only=True)
class Plan:
    databases: Sequence[str]  # Tests marked `once` run on the first only.
    length: Length = Length.USUAL
    gates: bool = True
    pytest_arguments: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """A process. `arguments`: of the interpreter. `url`: of the database; empty: SQLite.

    `makes_it`: it runs outside of the environment, which it makes.
    """

    name: str
    arguments: Sequence[str]
    python: Python = field(default_factory=Python.running)
    url: str = ""
    makes_it: bool = False

    @property
    def command(self) -> list[str | Path]:
        return [self.python.base if self.makes_it else self.python.interpreter, *self.arguments]


@dataclass(frozen=True, kw_only=True)
class Result:
    name: str
    exit_code: int
    seconds: float
    cpu_seconds: float
    last_line: str

    @property
    def ran_nothing(self) -> bool:
        return self.exit_code == NO_TEST_RAN

    @property
    def line(self) -> str:
        verdict = "no test ran" if self.ran_nothing else "FAILED" if self.exit_code else "passed"
        return f"{self.name}: {verdict} in {self.seconds:.0f} s, {self.cpu_seconds:.0f} s of CPU ({self.last_line})"


def run_all(plan: Plan) -> bool:
    """Run the plan, print a summary, and return whether everything passed.

    Raises CannotTry if something that is needed is missing.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="taskstore-runs-") as folder, addresses(plan.databases) as urls:
        results = Lanes(Path(folder)).results(lanes_of(plan, urls))
    print("\n== summary")
    for result in results:
        print(result.line)
    print(f"{time.monotonic() - started:.0f} s, {sum(result.cpu_seconds for result in results):.0f} s of CPU")
    ran = [not result.ran_nothing for result in results if result.name.startswith("tests")]
    # Whoever names tests may name some that a run leaves out.
    enough_ran = any(ran) if plan.pytest_arguments else all(ran)
    return enough_ran and all(not result.exit_code or result.ran_nothing for result in results)


def lanes_of(plan: Plan, urls: Mapping[str, str]) -> Iterator[Sequence[Run]]:
    """Yield the lanes, which run at once: one for the gates and one for each database. Their runs follow each other."""
    first, *_ = plan.databases
    is_quick, is_all = plan.length is Length.QUICK, plan.length is Length.ALL
    oldest, newest = (Python.running(),) * 2 if is_quick else oldest_and_newest()
    pythons = {SQLITE: (newest, oldest), POSTGRESQL: (oldest, newest)}

    def tests(part: str, database: str, python: Python, marks: str, arguments: Sequence[str]) -> Run:
        left_out = [
            *([] if is_all else ["thorough"]),
            *(["browser"] if is_quick else []),
            *([] if database == first else ["once"]),
        ]
        profile = "quick" if is_quick else "thorough" if is_all else "usual"
        options = ["-o", f"cache_dir=.pytest_cache/{database}-{python.version}", "--hypothesis-profile", profile]
        options += ["-m", " and not ".join([marks, *left_out])]
        return Run(
            name=f"tests{part} on {database} with Python {python.version}",
            arguments=["-m", "pytest", *options, *arguments, *plan.pytest_arguments],
            python=python,
            url=urls[database],
        )

    def lane(database: str) -> Iterator[Run]:
        python, other = pythons[database]
        several = ["-n", PROCESSES[database], *BY_FILE]
        files = [] if plan.pytest_arguments else files_with("mark.stress")
        stress = [] if is_quick else [tests(" under stress", database, python, "stress", files)]
        yield from packages(python)
        if database == POSTGRESQL:  # First, as it leaves much of the CPU to the tests of the other lane.
            yield from stress
        yield tests("", database, python, "not stress", several)
        if plan.length >= Length.LANDING and not plan.pytest_arguments:
            if other != python:
                marks, *paths = ["not stress"] if is_all else PORTABILITY[database]
                part = "" if is_all else " of portability"
                yield from packages(other)
                yield tests(part, database, other, marks, [*several, *(f"tests/{path}" for path in paths)])
            yield chaos(database, *([] if is_all else ["--tiny"]))
        if database == SQLITE:
            yield from stress

    if plan.gates:
        yield [Run(name="format, lint, types", arguments=["-m", "lab.testing.gates"])]
    yield from ([*lane(database)] for database in plan.databases)


def packages(python: Python) -> Iterator[Run]:
    """Yield what makes the environment of another Python, if it is not there."""
    if python.folder:
        command = ["manage.py", "test", "--install"]
        yield Run(name=f"packages for Python {python.version}", arguments=command, python=python, makes_it=True)


def chaos(database: str, *length: str) -> Run:
    arguments = ["manage.py", "chaos", *length, "--database", database]
    return Run(name=" ".join(["chaos", *length, "on", database]), arguments=arguments)


def files_with(text: str) -> list[str]:
    """Return the files of tests that contain the text: collecting all tests takes longer than a few of them."""
    return [str(file) for file in sorted((PROJECT / "tests").rglob("test_*.py")) if text in file.read_text()]


class Lanes:
    """Runs in progress. Their outputs are printed one after the other, the first one while it is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._has_ended = False
        self._lock = Lock()

    def results(self, lanes: Iterable[Iterable[Run]]) -> list[Result]:
        """Run everything and return the results in this order. Ends all processes if it is interrupted."""
        with ExitStack() as stack:
            under_way = []
            for lane in lanes:
                pool = stack.enter_context(ThreadPoolExecutor(1))
                for run in lane:
                    output = self._new_output()
                    under_way.append((run, output, pool.submit(self._go, run, output)))
            stack.callback(self._end)
            results = []
            for run, output, future in under_way:
                results.append(self._followed(run, output, future))
                if run.makes_it and results[-1].exit_code:
                    raise CannotTry(f"the environment for Python {run.python.version} can't be made: see above")
            return results

    def _new_output(self) -> Path:
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        os.close(descriptor)
        return Path(name)

    def _go(self, run: Run, output: Path) -> Result:
        started = time.monotonic()
        environment = {**clean_environment(self._folder), **run.python.variables, "DATABASE_URL": run.url}
        with output.open("wb") as written, self._lock:
            if self._has_ended:
                raise CancelledError
            process = subprocess.Popen(
                run.command,
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
            )
            self._processes.add(process)
        # It stays a zombie, of which the system still knows how long it used the CPU.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        cpu_seconds = cpu_s(process.pid)
        exit_code = process.wait()
        self._processes.remove(process)
        return Result(
            name=run.name,
            exit_code=exit_code,
            seconds=time.monotonic() - started,
            cpu_seconds=cpu_seconds,
            last_line=output.read_text(errors="replace").strip().rpartition("\n")[2].strip("= "),
        )

    def _followed(self, run: Run, output: Path, result: Future[Result]) -> Result:
        print(f"\n== {run.name}", flush=True)
        with output.open(errors="replace") as text:
            while True:
                has_ended = result.done()  # Before reading, so that the last output is read too.
                print(text.read(), end="", flush=True)
                if has_ended:
                    return result.result()
                time.sleep(LOOK_EVERY_S)

    def _end(self) -> None:
        """Give interrupted runs time to stop their servers and databases."""
        with self._lock:
            self._has_ended = True
            left = [*self._processes]
        for process in left:
            process.send_signal(signal.SIGINT)
        for process in left:
            try:
                process.wait(GOODBYE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
