"""`taskstore work`: the command that starts a worker of jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import click

from taskstore.cli import parameter_types
from taskstore.cli.base import Left, Mistake, Scope, Session, StoreCommand
from taskstore.client.client import Client
from taskstore.jobs.worker import run_worker
from taskstore.types.job_record import DEFAULT_QUEUE
from taskstore.worker.children import NotPrepared
from taskstore.worker.engine import left_over
from taskstore.worker.reload import NotReloaded, reload_on_change

AT_LEAST_ONE = click.IntRange(min=1)


@click.command("work", cls=StoreCommand, needs=Scope.WORK)
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--queue", "queues", multiple=True, default=[DEFAULT_QUEUE], show_default=True, metavar="NAME",
              help="Queue to process; may be repeated.")  # fmt: skip
@click.option(
    "--processes",
    type=click.IntRange(1, 1_000),
    metavar="N",
    help="Jobs to run at the same time [default: one per core].",
)
@click.option("--jobs-per-process", type=AT_LEAST_ONE, default=1, show_default=True, metavar="N",
              help="Jobs that a process runs before it ends; these jobs share its state.")  # fmt: skip
@click.option("--lease", "lease_ms", type=parameter_types.lease_ms, default="30s", show_default=True, metavar="TIME",
              help="Time until other workers get the jobs of a dead machine.")  # fmt: skip
@click.option("--grace", "grace_ms", type=parameter_types.duration_ms, default="8s", show_default=True, metavar="TIME",
              help="Time for running jobs to finish after SIGTERM or Ctrl-C; then they are given back.")  # fmt: skip
@click.option("--memory-mb", type=AT_LEAST_ONE, metavar="N", help="Memory limit of a job that sets none itself.")
@click.option("--start", type=click.Choice(["fork", "spawn"]), default="fork", show_default=True,
              help="Use spawn for modules that start threads when imported.")  # fmt: skip
@click.option("--output", type=click.Choice(["copy", "store", "raw"]), default="copy", show_default=True,
              help="Where what jobs write goes beside the store: to standard error, each line with the id of its job "
                   "(copy) or without (raw), or nowhere (store).")  # fmt: skip
@click.option("--burst", "until_empty", is_flag=True, help="Stop when no job is due.")
@click.option("--burst-wait", "burst_wait_ms", type=parameter_types.duration_ms, default="1min", show_default=True,
              metavar="TIME", help="With --burst, how long to wait for jobs that run again, or whose worker is gone. "
                                   "If some come later, the exit code is 3.")  # fmt: skip
@click.option("--reload", is_flag=True, help="Start again when Python code below the current directory changes.")
@click.option("--name", default="", metavar="TEXT", help="Name shown in the console [default: host and process].")
@click.pass_obj
def work(
    session: Session,
    /,
    modules: Sequence[str],
    grace_ms: int,
    burst_wait_ms: int,
    memory_mb: int | None,
    reload: bool,
    **options: Any,
) -> None:
    """Run the jobs of MODULEs, the functions with @job, each in its own process, until Ctrl-C.

    taskstore work reports.jobs --queue default --queue slow --processes 4
    """
    if files := [module for module in modules if module.endswith(".py") or "/" in module]:
        raise Mistake(f"{files[0]} is a file: name its module, such as reports.jobs for reports/jobs.py")
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("taskstore").setLevel(logging.INFO)
    if reload:
        if options["until_empty"]:
            raise click.UsageError("give either --reload or --burst")
        try:
            reload_on_change()
        except NotReloaded as problem:
            raise Mistake(str(problem)) from None
    memory_bytes = None if memory_mb is None else memory_mb * 2**20
    try:
        with Client(**session.where) as store:
            left = run_worker(
                modules,
                store=store,
                grace_s=grace_ms / 1_000,
                burst_wait_s=burst_wait_ms / 1_000,
                memory_bytes=memory_bytes,
                **options,
            )
    except NotPrepared as problem:
        raise Mistake(str(problem)) from None
    if left:
        raise Left(left_over(left))
