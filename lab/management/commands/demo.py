"""Demos of the store, to watch in the console."""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.core.management.base import CommandParser

from lab.demo import wordcount
from lab.demo.seed import Seed
from lab.demo.wordcount import LEASE_MS, Crew, WorkerFailed, sample_text, text_of, words_of
from tasks_app.models import Task
from taskstore import Client, NotAllowed, StoreUnavailable
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
        wordcount.add_argument(
            "files",
            nargs="*",
            type=Path,
            metavar="FILE",
            help="text to count (default: a megabyte of text from this machine)",
        )
        wordcount.add_argument(
            "--workers", type=number_between(1, MOST_WORKERS), default=8, metavar="N", help="default: 8"
        )
        wordcount.add_argument("--kill-workers", action="store_true", help="kill -9 workers at random")
        wordcount.add_argument("--keep", action="store_true", help="leave the output tasks in the store")
        wordcount.add_argument("--url", help="server address (default: the server that uses this data directory)")
        wordcount.add_argument("--token", help="access token with the scope work (default: the local server's)")

        seed = demos.add_parser("seed", help="fill an empty store with sample tasks, to try the console")
        seed.add_argument(
            "--tasks", type=number_between(1, MOST_TASKS), default=10_000, metavar="N", help="default: 10 000"
        )
        seed.add_argument("--groups", type=number_between(1, MOST_GROUPS), default=50, metavar="N", help="default: 50")
        seed.add_argument("--workers", type=number_between(1, MOST_SEEDED), default=10, metavar="N", help="default: 10")

    def handle(self, *, demo: str, **options: Any) -> None:
        if demo == "seed":
            self.seed(**options)
        else:
            self.wordcount(**options)

    def seed(self, *, tasks: int, groups: int, workers: int, **_: Any) -> None:
        if tasks < 2 * groups:
            raise CannotRun(f"{tasks} tasks are too few for {groups} groups: each needs at least two")
        startup_migration.need_store()
        if Task.objects.exists():
            raise CannotRun("this store holds tasks: fill an empty one, for example with --data DIR")
        began_at = time.monotonic()
        Seed(tasks=tasks, groups=groups, workers=workers, tell=Progress()).sow()
        print(f"done in {time.monotonic() - began_at:.1f} s")

    def wordcount(self, *, files: Sequence[Path], url: str | None, token: str | None, **options: Any) -> None:
        text = read(files)
        url, token = access(url, token)
        try:
            with Client(url, token=token) as store:
                found = self.count(text, store, url, token, **options)
        except (WorkerFailed, NotAllowed, TimeoutError) as problem:
            raise CannotRun(str(problem)) from problem
        except StoreUnavailable as problem:
            raise CannotRun(f"the server at {url} does not respond: {problem}") from problem
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        self.compare(found, Counter(words_of(text)))

    def count(
        self, text: str, store: Client, url: str, token: str, *, workers: int, kill_workers: bool, keep: bool, **_: Any
    ) -> Counter[str]:
        run = f"wordcount/{secrets.token_hex(3)}"
        crew = Crew(url, token, run, size=workers, is_killed=kill_workers)
        store.claim(f"{run}/map")  # A token that is no good is told here, and not by each worker.
        print(f"{workers} workers are counting the words of a text. Watch the groups {run}/... at {url}/console/")
        if kill_workers:
            print(
                "Workers are killed (kill -9) at random, and replaced. The tasks that one held go to the others "
                f"when its lease of {LEASE_MS // 1_000} s ends."
            )
        sys.stdout.flush()
        started_at = time.monotonic()
        try:
            with crew:
                found = wordcount.count(store, run, text, crew, Progress())
        finally:
            if not keep:
                wordcount.clean_up(store, run)
        killed = f", {crew.kills} workers were killed and replaced" if kill_workers else ""
        print(f"done in {time.monotonic() - started_at:.1f} s{killed}")
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
        text = text_of(files) if files else sample_text()
    except OSError as problem:
        raise CannotRun(f"can't read {problem.filename}: {problem.strerror}") from None
    if not words_of(text):
        raise CannotRun("this text contains no words: name another file")
    return text


def access(url: str | None, token: str | None) -> tuple[str, str]:
    """Return address and token of the server: as given, else of the one that serves this data directory."""
    here = ServerFile(settings.TASKSTORE_DATA)
    if not url:
        url, token = here.url(), token or here.token()
    if not url:
        raise CannotRun(
            f"no server runs on this data directory: start one with `{typed('up')}`, or name one with --url and --token"
        )
    if not token:
        # Never send the token of this machine's server to another one.
        raise CannotRun(f"name a token for {url} with --token")
    try:
        answer = httpx.get(f"{url}/healthz", trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        raise CannotRun(f"no server responds at {url} ({problem}): start one with `{typed('up')}`") from None
    if answer.is_error:
        raise CannotRun(f"the server at {url} is not a task store: /healthz returns {answer.status_code}")
    return url, token
