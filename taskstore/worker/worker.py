"""A worker of functions, as programs make it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ..types.tasks import Order
from .children import Child, refuse_in_children
from .engine import Engine
from .functions import Attempt, Functions, Here, Place
from .handlers import Function, Handler
from .store import Store

F = TypeVar("F", bound=Function)


class Worker(Engine[Attempt]):
    """Claims tasks, has functions do them, and commits what they return together with the end of the task.

    Leases are renewed meanwhile, for days if need be. `store`: a Client, or what has its verbs.

    * `threads`: how many tasks are done at once; or `processes`, for functions that compute, or that may crash.
      Coroutine functions run on one event loop, as many at once as there are threads or processes.
    * `batch`: how many tasks a claim may take although there are not so many threads. They wait for their turn here.
    * `lease_ms`: how long it may take until others get the tasks of a worker that has died.
    * `grace_s`: how long what has begun may go on when the worker stops. Then it is given back.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str = "",
        lease_ms: int = 30_000,
        threads: int = 1,
        processes: int = 0,
        batch: int = 1,
        order: Order = Order.RANDOM,
        wait_ms: int = 20_000,
        grace_s: float = 8,  # Docker kills after ten.
    ) -> None:
        if threads < 1 and not processes:
            raise ValueError(f"threads: must be at least 1, not {threads}")
        if not isinstance(lease_ms, int) or lease_ms < 1:
            raise ValueError(f"lease_ms: must be a whole number of milliseconds above 0, not {lease_ms!r}")
        self._handlers: dict[str, Handler] = {}
        places: list[Place] = [Child(self._handlers) for _ in range(processes)] or [Here() for _ in range(threads)]
        self._functions = Functions(self._handlers, places, batch=batch)
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
        self, group: str, *, max_attempts: int = 5, backoff_ms: int = 1_000, failed_group: str = ""
    ) -> Callable[[F], F]:
        """A decorator: the function does the tasks of the group. It takes the task, and a Context if it can.

        It returns what is added (NewTask) or changed (Change) by the commit that deletes the task: one, several, a
        Result with all that a commit can hold, or None. When it raises an exception it is tried again after
        `backoff_ms`, then after twice as long and so on, an hour at most; after the last attempt the task is moved
        with its error to the failed group, `GROUP/failed` unless another one is named. `Discard` deletes the task
        at once, `Save` moves it at once.
        """

        if group in self._handlers:
            raise ValueError(f"another function handles {group!r} already")

        def keep(function: F) -> F:
            self._handlers[group] = Handler(
                group=group,
                function=function,
                failed_group=failed_group or f"{group}/failed",
                max_attempts=max_attempts,
                backoff_ms=backoff_ms,
            )
            return function

        return keep

    def run(self) -> None:
        """Work until `stop` is called, or SIGTERM or SIGINT come. Raises NotAllowed when the token does not do.

        It can be called once. In the main thread it listens for the signals; a second one ends the process at once.
        """
        if not self._handlers:
            raise ValueError("no function handles any group: decorate one with worker.handle(GROUP)")
        refuse_in_children()
        super().run()

    @property
    def ended(self) -> Mapping[str, int]:
        """How many attempts have ended how: `done`, `failed`, `discarded`, `saved`, `lost`."""
        return dict(self._functions.ended)
