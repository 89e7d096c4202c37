"""Everything that `manage.py test` runs, side by side."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Plan:
    databases: Sequence[str]  # Tests marked `once` run on the first only.
    quick: bool  # Without the tests that need a browser or many processes.
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

    def run(database: str, *selection: str, part: str = "") -> Run:
        name = f"{database} {part}".strip()
        cache = ["-o", f"cache_dir=.pytest_cache/{name.replace(' ', '-')}"]
        arguments = [*cache, *selection, *(QUICK if plan.quick else []), *plan.pytest_arguments]
        return Run(name=name, module=PYTEST, url=urls[database], arguments=arguments, folder=folder)

    gates = [Run(name="format, lint, types", module=GATES, folder=folder)] if plan.gates else []
    if len(urls) == 1 and sys.stdin.isatty():
        return [run_here(each) for each in (*gates, *map(run, urls))]
    first, *others = plan.databases
    own = ["--without=once", "--without=stress"]
    # In two, else the others wait for it.
    browser = run(first, "--only=once", "--only=browser", "--without=stress", part="once in a browser")
    outcomes = run_side_by_side(
        *gates,
        run(first, "--only=once", "--without=browser", "--without=stress", part="once"),
        *([] if plan.quick else [browser]),
        run(first, *own),
        # The slower database takes twice as long otherwise.
        *(run(other, "--without=servers", *own) for other in others),
        *(run(other, "--only=servers", *own, part="with servers") for other in others),
    )
    if not plan.quick and not (stops_at_a_failure(plan) and any(not outcome.passed for outcome in outcomes)):
        outcomes += run_side_by_side(
            run(first, "--only=once", "--only=stress", part="under load once"),
            *(run(database, "--without=once", "--only=stress", part="under load") for database in urls),
        )
    return outcomes


def stops_at_a_failure(plan: Plan) -> bool:
    return bool({"-x", "--exitfirst"} & set(plan.pytest_arguments))
