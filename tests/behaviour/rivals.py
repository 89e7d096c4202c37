"""Others who use the store at the same time, each on a connection of their own, led step by step."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from django.db import connection, connections, transaction

T = TypeVar("T")

PATIENCE_S = 20  # Until something that has to happen counts as never happening.


class Rival:
    """Somebody who does one thing after another in a thread and on a connection of their own."""

    def __init__(self, name: str) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.steps = Steps()
        self.has_begun = threading.Event()  # To wait for its turn, where there is one writer at a time.
        self.backend = self.do(self._connect)

    def _connect(self) -> int:
        """The number of the connection's process, on PostgreSQL."""
        connection.execute_wrappers.append(self.steps)
        with connection.cursor() as cursor:
            if connection.vendor != "postgresql":
                # As long as the others wait for each other; who is to be impatient says so.
                cursor.execute(f"PRAGMA busy_timeout = {PATIENCE_S * 1_000}")
                return 0
            # It takes a second to notice a deadlock else.
            cursor.execute("SET deadlock_timeout = '20ms'")
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    def start(self, what: Callable[[], T]) -> Future[T]:
        """Begin to do it; the answer comes with the future."""
        return self.thread.submit(what)

    def do(self, what: Callable[[], T]) -> T:
        return self.start(what).result(PATIENCE_S)

    @contextmanager
    def transaction(self) -> Iterator["OpenTransaction"]:
        """A transaction that stays open until the block ends, or until it is told to end."""
        open_transaction = OpenTransaction(self)
        try:
            yield open_transaction
        finally:
            open_transaction.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.steps.go_on()
        self.do(connections.close_all)
        self.thread.shutdown()


class OpenTransaction:
    def __init__(self, rival: Rival) -> None:
        self.rival, self.is_open = rival, True
        self.atomic = rival.do(transaction.atomic)
        rival.do(self.atomic.__enter__)

    def commit(self) -> None:
        self._end(lambda: None)

    def roll_back(self) -> None:
        self._end(lambda: transaction.set_rollback(True))

    def _end(self, how: Callable[[], None]) -> None:
        if self.is_open:
            self.is_open = False
            self.rival.do(how)
            self.rival.do(lambda: self.atomic.__exit__(None, None, None))


class Steps:
    """Stops before a statement, until it may go on."""

    def __init__(self) -> None:
        self.word, self.skipped = "", 0
        self.has_come, self.may_go = threading.Event(), threading.Event()

    def stop_before(self, word: str, skip: int = 0) -> None:
        """Stop before the next statement that holds the word, having let so many of them pass."""
        self.word, self.skipped = word, skip
        self.has_come.clear()
        self.may_go.clear()

    def wait_until_there(self) -> None:
        assert self.has_come.wait(PATIENCE_S), f"no statement with {self.word} came"

    def go_on(self) -> None:
        self.may_go.set()

    def __call__(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if self.word and self.word in sql:
            self.skipped -= 1
            if self.skipped < 0:
                self._stop()
        return execute(sql, *rest)

    def _stop(self) -> None:
        self.word = ""
        self.has_come.set()
        assert self.may_go.wait(PATIENCE_S), "nobody let it go on"


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.002)


def is_waiting_for_a_lock(rival: Rival) -> bool:
    """Whether PostgreSQL says so."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [rival.backend])
        return bool(cursor.fetchone()[0])
