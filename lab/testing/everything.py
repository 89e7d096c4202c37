"""Run everything of `manage.py test`, in parallel."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from taskstore_project import bootstrap

from . import PROJECT
from .postgresql import postgresql
from .suite import Run, SuiteResult, run_here, run_side_by_side

MEMORY = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it.
ENOUGH_BYTES = 4 * 2**30  # In a container it may be as small as 64 MB.


def data_place() -> Path | None:
    """Return a file system in memory with enough room; None: use the folder of temporary files.

    No test depends on durability, and waiting for the disk took half of their time on SQLite.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        return MEMORY
    return None


SQLITE, POSTGRESQL = "sqlite", "postgresql"
PYTEST, GATES = "pytest", "lab.testing.gates"
QUICK = ["--without=browser", "--without=stress", "--hypothesis-profile=quick"]
# Tests that don't depend on the versions of Python and Django.
OF_THE_PROJECT = (
    *("benchmarks", "chaos", "cluster", "docs"),
    *("test_architecture.py", "test_bootstrap.py", "test_contributing.py", "test_packaging.py"),
)

# Folders that take half of the time of the tests that run on every database, and of those that run once.
APART = (
    ("behaviour", "--without=once", {"bad_input", "behaviour"}),
    ("clients", "--only=once", {"client", "commands", "jobs", "live", "security"}),
)

Part = tuple[str, ...]  # A database, the name of the part, and pytest's arguments for it.


@dataclass(frozen=True, kw_only=True)
class Plan:
    databases: Sequence[str]  # Tests marked `once` run on the first only.
    quick: bool  # Without the tests that need a browser or many processes.
    portability: bool  # Only what another Python or another Django may break.
    gates: bool
    pytest_arguments: Sequence[str]


def run_everything(plan: Plan) -> bool:
    """Run the plan, print a summary, and return whether everything passed.

    Raises CannotTry if something that is needed is missing.
    """
    made = tempfile.TemporaryDirectory(prefix="taskstore-test-", dir=data_place())
    with made as name, addresses(plan.databases) as urls:
        outcomes = run_suites(plan, urls, Path(name))
    print("\n== summary")
    for outcome in outcomes:
        print(outcome.line)
    some_tests_ran = any(not outcome.ran_nothing for outcome in outcomes if outcome.run.module == PYTEST)
    return some_tests_ran and all(outcome.passed or outcome.ran_nothing for outcome in outcomes)


@contextmanager
def addresses(databases: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the address of each database; empty for SQLite, which has a file in the data directory of each run."""
    if POSTGRESQL not in databases:
        yield dict.fromkeys(databases, "")
        return
    with postgresql() as url:
        yield {database: url if database == POSTGRESQL else "" for database in databases}


def run_suites(plan: Plan, urls: dict[str, str], folder: Path) -> list[SuiteResult]:
    """Run suites in parallel, which keeps two cores busy; stress tests run after the others.

    On one database and a terminal, everything is a single run with the terminal for itself.
    """

    def run(database: str, part: str = "", *selection: str) -> Run:
        name = f"{database} {part}".strip()
        cache = ["-o", f"cache_dir=.pytest_cache/{name.replace(' ', '-')}"]
        arguments = [*cache, *selection, *(QUICK if plan.quick else []), *plan.pytest_arguments]
        return Run(name=name, module=PYTEST, url=urls[database], arguments=arguments, folder=folder)

    gates = [Run(name="format, lint, types", module=GATES, folder=folder)] if plan.gates else []
    if len(urls) == 1 and sys.stdin.isatty() and not plan.portability:
        return [run_here(each) for each in (*gates, *map(run, urls))]
    chosen = parts_for_portability(plan) if plan.portability else parts(plan)
    outcomes = run_side_by_side(*gates, *starmap(run, chosen))
    if not plan.quick and not (stops_at_a_failure(plan) and any(not outcome.passed for outcome in outcomes)):
        outcomes += run_side_by_side(*starmap(run, parts_under_load(plan)))
    return outcomes


def parts(plan: Plan) -> Iterator[Part]:
    """Return the runs, longest first, so that none is left alone at the end."""
    first, *others = plan.databases
    once, own = ("--only=once", "--without=browser", "--without=stress"), ("--without=once", "--without=stress")
    yield first, "", *own, "--without=servers"
    yield first, "once", *once, "--without=servers"
    for other in others:
        yield other, "with servers", *own, "--only=servers"
        yield other, "", *own, "--without=servers"
    yield first, "once with servers", *once, "--only=servers"
    yield first, "with servers", *own, "--only=servers"
    if not plan.quick:
        yield first, "once in a browser", "--only=once", "--only=browser", "--without=stress"


def parts_for_portability(plan: Plan) -> Iterator[Part]:
    """Return nearly all tests for the first database, the driver's tests for others, and starts of servers.

    The first ones take about the same time, as many as run at once: many of these tests wait.
    """
    first, *others = plan.databases
    places = {place.name for place in (PROJECT / "tests").glob("[!_]*") if place.is_dir() or place.match("test_*.py")}
    for name, mark, folders in APART:
        for title, left_out in ((name, places - folders), (f"without {name}", {*OF_THE_PROJECT, *folders})):
            # Not by naming folders, to which the user's own choice of files would be added.
            yield first, title, mark, "--without=servers", *(f"--ignore=tests/{place}" for place in sorted(left_out))
    for other in others:
        yield other, "", "tests/writer"
    for database in plan.databases:
        yield database, "with servers", "tests/server", "-k", "test_up.py or test_serve.py"


def parts_under_load(plan: Plan) -> Iterator[Part]:
    yield plan.databases[0], "under load once", "--only=once", "--only=stress"
    for database in plan.databases:
        yield database, "under load", "--without=once", "--only=stress"


def stops_at_a_failure(plan: Plan) -> bool:
    return bool({"-x", "--exitfirst"} & set(plan.pytest_arguments))


def run_with_other_python(arguments: list[str]) -> int:
    """Run `manage.py` with these arguments on the newest Python of another version; return its exit code.

    Another Python may mean another line of Django. It gets an environment of its own.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = ((python, bootstrap.version_of(python)) for python in bootstrap.interpreters())
    python, version = next(((python, version) for python, version in versions if version != own), (None, ""))
    if python is None:
        print("== there is no other Python here to test with", flush=True)
        return 0
    print(f"== with Python {version}", flush=True)
    environment = {**os.environ, "TASKSTORE_ENVIRONMENT": f".venv-{version}"}
    return subprocess.run([python, PROJECT / "manage.py", *arguments], env=environment, check=False).returncode
