"""`Worker`, which runs functions for the tasks of groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, Unpack

from ..types.tasks import Order
from .engine import Engine
from .function_processes import refuse_in_children
from .functions import FunctionAttempt, Functions
from .handlers import Function, Handler, Outcome, Retries, Rules
from .store import Store

F = TypeVar("F", bound=Function)


class Worker(Engine[FunctionAttempt, Outcome]):
    """A worker that claims tasks, calls functions with them, and commits their results as the tasks end.

    It renews leases for as long as a function runs. Register functions with `handle`, then call `run`.

    * `store`: a Client, or an object with the same methods.
    * `name`: for operators; by default the name of the program.
    * `lease_ms`: how long until other workers get the tasks of a worker that died.
    * `threads`: how many tasks run at the same time. `processes`: run them in this many processes instead, for
      functions that compute or may crash. Coroutine functions run in one event loop, up to the same number at once.
    * `batch`: how many tasks one claim may take even if fewer threads are free; the others are queued here. By default
      as many as recently ended in a small part of a second. 1: none is claimed ahead.
    * `order`: whether claims take random or the oldest available tasks.
    * `wait_ms`: how long the server holds a claim when there is no task.
    * `grace_s`: how long running functions may continue when the worker stops. Then their tasks are given back.

    Raises ValueError for invalid arguments.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str = "",
        lease_ms: int = 30_000,
        threads: int = 1,
        processes: int = 0,
        batch: int | None = None,
        order: Order = Order.RANDOM,
        wait_ms: int = 20_000,
        grace_s: float = 8,  # Docker kills after ten.
    ) -> None:
        if threads < 1 and not processes:
            raise ValueError(f"threads: must be at least 1, not {threads}")
        if batch is not None and batch < 1:
            raise ValueError(f"batch: must be at least 1, not {batch}")
        if not isinstance(lease_ms, int) or lease_ms < 1:
            raise ValueError(f"lease_ms: must be a whole number of milliseconds above 0, not {lease_ms!r}")
        self._handlers: dict[str, Handler] = {}
        self._functions = Functions(self._handlers, threads=threads, processes=processes, batch=batch)
        super().__init__(
            store,
            self._functions,
            self._handlers.keys(),
            name=name or Path(sys.argv[0]).stem,
            lease_ms=lease_ms,
            order=order,
            wait_ms=wait_ms,
            grace_s=grace_s,
        )

    def handle(
        self, group: str, *, max_attempts: int = 5, failed_group: str = "", **rules: Unpack[Rules]
    ) -> Callable[[F], F]:
        """Decorate the function that handles the tasks of a group.

        The function takes the task and, if it has a second parameter, a Context. It returns the tasks to add (NewTask)
        or update (Change) in the commit that deletes the task: one of them, several, a Result for all parts of a
        commit, or None.

        If it raises an exception, the task is retried after a pause: `backoff`, by default a second, which doubles with
        each attempt up to an hour. After `max_attempts` the task is moved with its error to `failed_group`, by default
        `GROUP/failed`. The function can raise `Discard` to delete the task, `Save` to move it at once, `Retry` to
        choose the pause, and `Snooze` to be called again without counting the attempt. The other arguments are those of
        Retries.

        Raises TypeError or ValueError for invalid arguments, ValueError if the group has a function.
        """
        retries = Retries.of(**rules)
        if group in self._handlers:
            raise ValueError(f"another function handles {group!r} already")

        def keep(function: F) -> F:
            self._handlers[group] = Handler(
                group=group,
                function=function,
                failed_group=failed_group or f"{group}/failed",
                max_attempts=max_attempts,
                retries=retries,
            )
            return function

        return keep

    def run(self, *, until_empty: bool = False, burst_wait_s: float | None = None) -> None:
        """Work until `stop` is called, or until SIGTERM or SIGINT. It can be called once.

        `until_empty`: work only until no task is available, without waiting for those that are due later or that other
        workers have, but up to `burst_wait_s`, if given, for those that run again, whose worker is gone, or
        whose group is paused or at its limit. Signals
        are handled in the main thread only; a second one ends the process at once. Raises NotAllowed if the token is
        not valid or not sufficient; ValueError without a registered function.
        """
        if not self._handlers:
            raise ValueError("no function handles any group: decorate one with worker.handle(GROUP)")
        refuse_in_children()
        super().run(until_empty=until_empty, burst_wait_s=burst_wait_s)

    @property
    def ended(self) -> Mapping[str, int]:
        """The number of attempts by outcome: `done`, `failed`, `discarded`, `saved`, `lost`,
        `given back`."""
        return dict(self._functions.ended)
