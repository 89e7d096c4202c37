"""The worker of a Django project: it runs what its tasks, those of Django's framework, have enqueued."""

from __future__ import annotations

import argparse
import logging
import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from tasks_app.database import store_alias
from tasks_app.database.table_version import why_unusable
from tasks_app.tasks_backend.backend import of_alias
from tasks_app.tasks_backend.framework import DEFAULT_TASK_BACKEND_ALIAS
from tasks_app.tasks_backend.schedules import put_declared
from tasks_app.tasks_backend.watched_store import WatchedStore
from taskstore.jobs.worker import JobWorker
from taskstore.types.job_record import DEFAULT_QUEUE, why_no_queue
from taskstore.types.scalars import whole
from taskstore.worker.children import NotPrepared
from taskstore.worker.engine import left_over
from taskstore.worker.reload import NotReloaded, reload_on_change

RESOLVER = "tasks_app.tasks_backend.functions:prepared"


class Command(BaseCommand):
    help = "Run the tasks of Django's task framework, each in a process of its own, until SIGTERM or Ctrl-C."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "--queue",
            action="append",
            type=_queue,
            metavar="NAME",
            help="run tasks of this queue; may be repeated (default: the QUEUES of the backend)",
        )
        add(
            "--processes",
            type=partial(_count, most=1_000),
            metavar="N",
            help="number of tasks to run at once (default: one per processor)",
        )
        add(
            "--jobs-per-process",
            type=_count,
            default=1,
            metavar="N",
            help="number of tasks after which a process is replaced (default: 1)",
        )
        add(
            "--lease",
            type=partial(_count, most=30 * 86_400),
            default=30,
            metavar="SECONDS",
            help="seconds until other workers get the tasks of a dead machine (default: 30)",
        )
        add(
            "--grace",
            type=_seconds,
            default=8.0,
            metavar="SECONDS",
            help="seconds for running tasks to finish after SIGTERM or Ctrl-C; then they are given back (default: 8)",
        )
        add("--memory-mb", type=_count, metavar="N", help="memory limit of a task that sets none itself")
        add(
            "--start",
            choices=["fork", "spawn"],
            default="fork",
            help="start each process as a copy, or as a new interpreter (spawn) (default: fork)",
        )
        add(
            "--schedules",
            action="store_true",
            help="first put the schedules that tasks declare, and delete those that none declares any more",
        )
        add(
            "--output",
            choices=["copy", "store", "raw"],
            default="copy",
            help="where what tasks write goes beside the store: to standard error, each line with the id of its task "
            "(copy) or without (raw), or nowhere (store) (default: copy)",
        )
        add("--burst", action="store_true", help="stop when no task is due")
        add(
            "--burst-wait",
            type=_seconds,
            default=60.0,
            metavar="SECONDS",
            help="with --burst, seconds to wait for tasks that run again, or whose worker is gone; if some come "
            "later, the exit code is 3 (default: 60)",
        )
        add("--reload", action="store_true", help="start again when the Python code of the project changes")
        add("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, metavar="ALIAS", help="entry of TASKS to use")
        add("--name", default="", help="name of this worker (default: its machine and process)")
        add("--alive", default="", metavar="FILE", help="touch this file while the store answers, for a probe")

    def handle(self, **options: Any) -> None:
        if options["reload"] and options["burst"]:
            raise CommandError("give either --reload or --burst")
        if options["reload"]:
            show_log()
            connections.close_all()
            try:
                reload_on_change(config.path for config in apps.get_app_configs() if not is_installed(config.path))
            except NotReloaded as problem:
                raise CommandError(str(problem)) from None
        try:
            backend = of_alias(options["backend"])
        except ImproperlyConfigured as problem:
            raise CommandError(f"--backend: {problem}") from None
        alias = store_alias()
        # Otherwise it would wait for its tables for ever.
        if why := why_unusable(alias, f'the database "{alias}"', "python manage.py migrate"):
            raise CommandError(why)
        queues = options["queue"] or sorted(backend.queues) or [DEFAULT_QUEUE]
        if options["schedules"]:
            try:
                done = put_declared(backend)
            except (ImproperlyConfigured, ValueError) as problem:
                raise CommandError(str(problem)) from None
            for line in done if options["verbosity"] else ():
                self.stdout.write(line)
        with WatchedStore(backend) as store:
            worker = JobWorker(
                store,
                queues,
                runner=[RESOLVER, backend.alias],
                processes=options["processes"],
                lease_ms=options["lease"] * 1_000,
                jobs_per_process=options["jobs_per_process"],
                start=options["start"],
                name=options["name"],
                grace_s=options["grace"],
                memory_bytes=options["memory_mb"] and options["memory_mb"] * 2**20,
                output=options["output"],
                alive=options["alive"],
            )
            if options["verbosity"]:
                show_log()
                self.stdout.write(f"{worker.name} works for {', '.join(queues)}")
                self.stdout.flush()
            try:
                worker.run(until_empty=options["burst"], burst_wait_s=options["burst_wait"])
            except NotPrepared as problem:
                raise CommandError(str(problem)) from None
        if worker.left:
            raise CommandError(left_over(worker.left), returncode=3)


def show_log() -> None:
    """Log a line for each task, unless the project's settings say otherwise."""
    logger = logging.getLogger("taskstore")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        logging.basicConfig(format="%(levelname)s %(message)s")


def is_installed(path: str) -> bool:
    """Whether it is the code of a package that pip has installed, which changes only with a new version."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(path).parts)


def _queue(text: str) -> str:
    if why := why_no_queue(text):
        raise argparse.ArgumentTypeError(f"the queue {text!r} {why}")
    return text


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text}")


def _count(text: str, most: int = 2**31) -> int:
    if number := whole(text, 1, most):
        return number
    raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, not {text}")
