"""Functions as jobs: `@job`, `current_job`, and how a worker finds a function by its name."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from ..types.job_record import DEFAULT_QUEUE, JobOptions, OnLost, why_no_queue

if TYPE_CHECKING:
    from ..client.client import Client
    from ..types.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Which job it is."""

    job_id: int
    attempt: int  # The first is 1.
    is_last: bool  # Whether the job is reported failed when this attempt fails.
    worker: str


class Stopped(BaseException):
    """The job is to end: its time is up, its lease is lost, or its worker stops. Not for the job to catch."""


_current: ContextVar[JobContext] = ContextVar("taskstore_job")


def current_job() -> JobContext:
    """The job that this code runs in. Raises LookupError outside of one."""
    return _current.get()


def enter(context: JobContext) -> None:
    _current.set(context)


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the function returns; an asyncio function is run to its end."""
    returned = function(*args, **kwargs)
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(returned: Any) -> Any:
    return await returned


IMPORTING = importlib.__file__ or "<frozen"
REGISTERED = "taskstore.jobs.registry:Registered"


def resolve(runner: Sequence[str]) -> Functions:
    """`module:callable`, called with the words that follow. Raises what the import or the call raises."""
    resolver, *words = runner
    module, _, name = resolver.partition(":")
    functions: Functions = getattr(importlib.import_module(module), name)(*words)
    return functions


def why_not(problem: Exception) -> str:
    """For people: what kept functions from being found, and where."""
    if isinstance(problem, UnknownFunction):
        return str(problem)
    ours = str(Path(__file__).parent)
    frames = traceback.extract_tb(problem.__traceback__)
    places = [frame for frame in frames if not frame.filename.startswith((ours, "<frozen", IMPORTING))]
    where = f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
    return f"{type(problem).__name__}: {problem}{where}"


MILLISECOND = timedelta(milliseconds=1)

Runnable = Callable[[JobContext, Sequence[Any], Mapping[str, Any]], Any]


class UnknownFunction(LookupError):
    """A job names a function that this worker does not run. The text says which it does."""


class Functions(Protocol):
    """What a worker finds functions in. Other kinds of functions come with one of their own."""

    def find(self, function: str) -> Runnable:
        """Raises UnknownFunction."""


@dataclass(frozen=True, kw_only=True)
class JobFunction:
    """A function that workers run. Called as such it runs here and now."""

    path: str  # Its name for workers: `module.qualname`.
    function: Callable[..., Any]
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    options: JobOptions = field(default_factory=JobOptions)
    at_ms: int = 0  # 0: now.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        at: datetime | None = None,
        **options: Any,
    ) -> JobFunction:
        """The same function, enqueued in another way. `at` needs a zone; the options are those of `job`."""
        if at is not None and at.tzinfo is None:
            raise ValueError(f"at must have a time zone, such as tzinfo=UTC; {at} has none")
        return replace(
            self,
            queue=checked(queue) if queue is not None else self.queue,
            priority=self.priority if priority is None else priority,
            at_ms=self.at_ms if at is None else round(at.timestamp() * 1000),
            options=replace(self.options, **in_ms(options)),
        )

    def enqueue(self, client: Client, *args: Any, **kwargs: Any) -> Job:
        """Add a job that calls it with these parameters: JSON. Raises InvalidInput."""
        return client.jobs.enqueue(
            self.path,
            args,
            kwargs,
            queue=self.queue,
            at_ms=self.at_ms,
            priority=self.priority,
            options=self.options,
        )


functions: dict[str, JobFunction] = {}  # By path: what `job` has been put on.


@overload
def job(function: Callable[..., Any], /) -> JobFunction: ...


@overload
def job(*, queue: str = DEFAULT_QUEUE, priority: int = 0, **options: Any) -> Callable[..., JobFunction]: ...


def job(
    function: Callable[..., Any] | None = None, /, *, queue: str = DEFAULT_QUEUE, priority: int = 0, **options: Any
) -> JobFunction | Callable[..., JobFunction]:
    """Let workers run the function: `@job`, or `@job(queue="mail", max_attempts=3)`.

    Options: `max_attempts`, `backoff` and `timeout` (timedelta), `memory_bytes`, `on_lost` ("retry" or "fail")
    and `max_lost`; see JobOptions. Raises TypeError for one that is not known.
    """
    if function is None:
        return lambda function: _registered(function, checked(queue), priority, JobOptions(**in_ms(options)))
    return _registered(function, queue, priority, JobOptions())


def in_ms(options: Mapping[str, Any]) -> dict[str, Any]:
    """As JobOptions has them: durations as numbers."""
    made = dict(options)
    for name in made.keys() & {"timeout", "backoff"}:
        duration = made.pop(name)
        if not isinstance(duration, timedelta | None):
            raise TypeError(f"{name} must be a timedelta, such as timedelta(seconds=30), not {duration!r}")
        made[f"{name}_ms"] = None if duration is None else round(duration / MILLISECOND)
    if "on_lost" in made:
        made["on_lost"] = OnLost(made["on_lost"])
    return made


def checked(queue: str) -> str:
    if why := why_no_queue(queue):
        raise ValueError(f"the queue {queue!r} {why}")
    return queue


def _registered(function: Callable[..., Any], queue: str, priority: int, options: JobOptions) -> JobFunction:
    made = JobFunction(path=path_of(function), function=function, queue=queue, priority=priority, options=options)
    functions[made.path] = made
    return made


def path_of(function: Callable[..., Any]) -> str:
    """The name under which a worker that imports the function's module knows it."""
    return f"{_module_name(function.__module__)}.{function.__qualname__}"


def _module_name(module: str) -> str:
    """Of a script that runs right now: the name by which others import it."""
    main = sys.modules["__main__"]
    if module != "__main__":
        return module
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec else Path(file).stem if file else module


class Registered:
    """The functions that `job` was put on, in the modules that the worker was told to import."""

    def __init__(self, *modules: str) -> None:
        for module in modules:
            importlib.import_module(module)
        if not functions:
            raise UnknownFunction(f"no function in {', '.join(modules)} is a job: decorate functions with @job")

    def find(self, function: str) -> Runnable:
        found = functions.get(function)
        if found is None:
            raise UnknownFunction(f"this worker does not run {function}, only {', '.join(sorted(functions))}")
        return lambda context, args, kwargs: call(found.function, args, kwargs)
