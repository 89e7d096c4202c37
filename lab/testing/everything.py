"""Everything that `manage.py test` runs, side by side."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from .postgresql import postgresql
from .suite import Run, SuiteResult, run_here, run_side_by_side

MEMORY = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it.
ENOUGH_BYTES = 4 * 2**30  # In a container it may be as small as 64 MB.


def data_place() -> Path | None:
    """A file system in memory, where there is one with room; None: wherever temporary files lie.

    What a disk keeps when the power fails no test sees, and waiting for it was half of their time on SQLite.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        return MEMORY
    return None


SQLITE, POSTGRESQL = "sqlite", "postgresql"
PYTEST, GATES = "pytest", "lab.testing.gates"
QUICK = ["--without=browser", "--without=stress", "--hypothesis-profile=quick"]
# What no Python and no Django decides: the sources, the packages, and what only the project itself runs.
OF_THE_PROJECT = (
    *("benchmarks", "chaos", "cluster", "docs"),
    *("test_architecture.py", "test_bootstrap.py", "test_contributing.py", "test_packaging.py"),
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
    """Run what the plan says, print a summary, and return whether all of it passed.

    Raises CannotTest when something that is needed can't be had.
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
    """The address of each database; empty for SQLite, which has one in the data folder of each run."""
    if POSTGRESQL not in databases:
        yield dict.fromkeys(databases, "")
        return
    with postgresql() as url:
        yield {database: url if database == POSTGRESQL else "" for database in databases}


def run_suites(plan: Plan, urls: dict[str, str], folder: Path) -> list[SuiteResult]:
    """Several runs side by side, which keep two cores busy to the end; those under load after the others.

    On one database everything is one run for who sits at a terminal, and has it for itself.
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
    """The longest first, so that at the end none goes on alone."""
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
    """On the first database nearly all, on others what has to do with their driver; and how servers start and end."""
    first, *others = plan.databases
    ours = [f"--ignore=tests/{name}" for name in OF_THE_PROJECT]
    yield first, "", "--without=once", "--without=servers", *ours
    yield first, "once", "--only=once", "--without=servers", *ours
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
