"""Demos of the store, to watch in the console."""

from __future__ import annotations

import pydoc_data.topics
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from lab.demo import wordcount
from lab.demo.seed import Seed
from lab.demo.wordcount import LEASE_MS, Crew, WorkerFailed, words_of
from tasks_app.models import Task
from taskstore import Client, StoreUnavailable
from taskstore_project import startup_migration
from taskstore_project.base_command import CannotRun, ProjectCommand, grouped, number_between, typed
from taskstore_project.data_directory import ServerFile

COUNTS_DIFFER = 1
INTERRUPTED = 130
MOST_WORKERS = 64  # Processes.
MOST_TASKS, MOST_GROUPS, MOST_SEEDED = 10_000_000, 10_000, 1_000
TELL_EVERY_S = 2.0


class Command(ProjectCommand):
    help = "Run sample work to watch in the console."

    def add_arguments(self, parser: CommandParser) -> None:
        demos = parser.add_subparsers(dest="demo", required=True, metavar="wordcount|seed")
        wordcount = demos.add_parser("wordcount", help="count the words of a text with map and reduce")
        wordcount.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: Python's own help")
        wordcount.add_argument(
            "--workers", type=number_between(1, MOST_WORKERS), default=8, metavar="N", help="default: 8"
        )
        wordcount.add_argument("--kill-workers", action="store_true", help="kill -9 workers at random")

        seed = demos.add_parser("seed", help="fill an empty store with sample tasks, to try the console")
        seed.add_argument(
            "--tasks", type=number_between(1, MOST_TASKS), default=10_000, metavar="N", help="default: 10 000"
        )
        seed.add_argument("--groups", type=number_between(1, MOST_GROUPS), default=50, metavar="N", help="default: 50")
        seed.add_argument("--workers", type=number_between(1, MOST_SEEDED), default=10, metavar="N", help="default: 10")

    def handle(self, *, demo: str, **options: Any) -> None:
        began_s = time.monotonic()
        if demo == "seed":
            self.seed(**options)
            print(f"done in {time.monotonic() - began_s:.1f} s")
            return
        text = read(options.pop("files"))
        here = ServerFile(settings.TASKSTORE_DATA)
        url, token = here.url(), here.token()
        if not url:
            raise CannotRun(f"no server runs on this data directory: start one with `{typed('up')}`")
        try:
            with Client(url, token=token, patience_s=5) as store:
                found = self.count(text, store, url, token or "", **options)
        except (WorkerFailed, TimeoutError) as problem:
            raise CannotRun(str(problem)) from problem
        except StoreUnavailable as problem:
            raise CannotRun(f"no server responds at {url} ({problem}): start one with `{typed('up')}`") from problem
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        print(f"done in {time.monotonic() - began_s:.1f} s")
        self.compare(found, Counter(words_of(text)))

    def seed(self, *, tasks: int, groups: int, workers: int, **_: Any) -> None:
        if tasks < 2 * groups:
            raise CannotRun(f"{tasks} tasks are too few for {groups} groups: each needs at least two")
        startup_migration.need_store()
        if Task.objects.exists():
            raise CannotRun("this store holds tasks: fill an empty one, for example with --data DIR")
        Seed(tasks=tasks, groups=groups, workers=workers, tell=Progress()).sow()

    def count(
        self, text: str, store: Client, url: str, token: str, *, workers: int, kill_workers: bool, **_: Any
    ) -> Counter[str]:
        run = f"wordcount/{secrets.token_hex(3)}"
        store.groups()  # A server that is away is told here, and not by each worker.
        print(f"{workers} workers are counting the words of a text. Watch the groups {run}/... at {url}/console/")
        if kill_workers:
            print(
                "Workers are killed (kill -9) at random, and replaced. The tasks that one held go to the others "
                f"when its lease of {LEASE_MS // 1_000} s ends."
            )
        sys.stdout.flush()
        try:
            with Crew(url, token, run, size=workers, is_killed=kill_workers) as crew:
                found = wordcount.count(store, run, text, crew, Progress())
        finally:
            wordcount.clean_up(store, run)
        if kill_workers:
            print(f"{crew.kills} workers were killed and replaced")
        return found

    def compare(self, found: Counter[str], expected: Counter[str]) -> None:
        """Print the most frequent words. Exits with code 1 if a count differs from a plain count."""
        print("the most frequent words:")
        for word, count in found.most_common(10):
            print(f"{grouped(count):>12}  {word}")
        wrong = sorted(word for word in found.keys() | expected.keys() if found[word] != expected[word])
        if not wrong:
            print(f"right: all {grouped(len(expected))} words have the same count as in a simple count of the text")
            return
        print(f"{grouped(len(wrong))} words have a different count from that of a simple count:", file=sys.stderr)
        for word in wrong[:10]:
            print(f"    {word}: {found[word]} instead of {expected[word]}", file=sys.stderr)
        sys.exit(COUNTS_DIFFER)


class Progress:
    """Show the progress: a changing line on a terminal, else a line every two seconds and at each end."""

    def __init__(self) -> None:
        self._told_at = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        is_whole = done >= total
        if sys.stdout.isatty():
            print(f"\r{grouped(done)} of {grouped(total)} {what}\033[K", end="\n" if is_whole else "", flush=True)
        elif is_whole or time.monotonic() - self._told_at > TELL_EVERY_S:
            self._told_at = time.monotonic()
            print(f"{grouped(done)} of {grouped(total)} {what}", flush=True)


def read(files: Sequence[Path]) -> str:
    try:
        texts = [file.read_text(errors="replace") for file in files]
    except OSError as problem:
        raise CannotRun(f"can't read {problem.filename}: {problem.strerror}") from None
    text = "\n".join(texts or pydoc_data.topics.topics.values())
    if not words_of(text):
        raise CannotRun("this text contains no words: name another file")
    return text
