"""`@job`, `current_job`, and the lookup of a function by its name."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from msgspec import inspect as kinds
from msgspec import structs

from ..errors import refuse
from ..types.checks import MOST, why_wrong
from ..types.job_record import DEFAULT_QUEUE, NO_LABELS, JobCall, JobOptions, OnLost, why_no_queue, wrong_labels
from ..types.progress import problems_of
from ..worker.handlers import DEFAULT, Report, Retries, Rules, unreported

MILLISECOND = timedelta(milliseconds=1)

# The member of JobOptions that each option sets. Durations are a timedelta or seconds, in Python.
OPTIONS: Mapping[str, str] = {
    "max_attempts": "max_attempts",
    "backoff": "backoff_ms",
    "timeout": "timeout_ms",
    "memory_bytes": "memory_bytes",
    "on_lost": "on_lost",
    "max_lost": "max_lost",
    "ignore_result": "ignore_result",
    "soft_time_limit": "soft_time_limit_ms",
    "expires": "expires_ms",
}


def job_options(*layers: Mapping[str, Any]) -> JobOptions:
    """Return the options of these layers, of which later ones take precedence. None counts as not given.

    Raises TypeError for an unknown option, and ValueError that names an option with an invalid value.
    """
    return JobOptions(**taken({name: value for each in layers for name, value in each.items() if value is not None}))


def described(options: Mapping[str, Any]) -> tuple[JobOptions, Retries]:
    """Return the options of a function's jobs, and what follows when it fails. Raises as `job_options` does."""
    of_jobs = dict(options)
    rules: Any = {name: of_jobs.pop(name) for name in Rules.__annotations__ if name in of_jobs}
    retries = Retries.of(**rules)
    backoff_ms = None if rules.get("backoff") is None else retries.first_ms
    return structs.replace(job_options(of_jobs), backoff_ms=backoff_ms), retries


def taken(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of JobOptions that the options set, of which None sets None. Raises as `job_options` does."""
    if unknown := [name for name in options if name not in OPTIONS]:
        raise TypeError(f"{unknown[0]} is not a known option: use one of {', '.join(OPTIONS)}")
    return {OPTIONS[name]: None if value is None else _taken(name, value) for name, value in options.items()}


def _taken(name: str, value: Any) -> Any:
    member = OPTIONS[name]
    [type_] = [each.type.types[0] for each in kinds.type_info(JobOptions).fields if each.name == member]  # type: ignore[attr-defined]
    if member != name:
        return milliseconds(name, value, least_ms=0 if name == "backoff" else 1)
    if why := why_wrong(_plain(type_), value):
        raise ValueError(f"{name} {why}")
    return OnLost(value) if name == "on_lost" else value


def milliseconds(name: str, value: Any, least_ms: int = 0) -> int:
    """Return a duration that is a timedelta, or a number of seconds. Raises ValueError, which names it."""
    try:
        given_ms = (value if isinstance(value, timedelta) else timedelta(seconds=value)) // MILLISECOND
    except (TypeError, ValueError, OverflowError):
        given_ms = -1
    if not least_ms <= given_ms <= MOST:
        bound = "at least a millisecond" if least_ms else "and not negative"
        bound = bound if given_ms <= MOST else f"at most {MOST // 1_000} s"
        raise ValueError(f"{name} must be a timedelta or a number of seconds, {bound}, not {value!r:.100}")
    return given_ms


def refuse_no_client(client: object) -> None:
    """Raise TypeError if jobs can't be enqueued with it."""
    if not hasattr(client, "jobs"):
        raise TypeError(f"the first argument must be a Client of the store, not {client!r:.100}")


def _plain(type_: kinds.Type) -> kinds.Type:
    return type_.type if isinstance(type_, kinds.Metadata) else type_


if TYPE_CHECKING:
    from ..client.client import Client
    from ..types.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The job that is running, from `current_job`."""

    job_id: int
    attempt: int  # Starts at 1.
    is_last: bool  # Whether the job fails for good if this attempt fails.
    worker: str  # The worker's name.
    after_batch: int | None = None  # The id of the batch that has added the job at its end; None: none did.
    ignore_result: bool = field(default=False, repr=False)
    report: Report = field(default=unreported, repr=False, compare=False)

    def progress(self, done: float, text: str = "") -> None:
        """Report the progress of the job: `done` from 0 to 1, and a text of up to 255 characters.

        Call it as often as you like: the worker sends the last report once a second. Raises InvalidInput.
        """
        refuse(problems_of(done, text))
        self.report(done, text)


class SoftTimeLimit(Exception):
    """Raised in a job after its `soft_time_limit`. What it returns after catching that is its result."""


class ResultNotJson(Exception):
    """A function returned a value that JSON can't represent. It is not called again."""


def result_of(context: JobContext, returned: Any, convert: Callable[[Any], Any]) -> Any:
    """Return what is kept of a returned value, which `convert` makes JSON. Raises ResultNotJson."""
    if context.ignore_result:
        return None
    try:
        result = convert(returned)
        json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    except SoftTimeLimit:
        raise
    except Exception as problem:  # Also of its own methods, and of the hook for what is not JSON.
        raise ResultNotJson(f"the result must be JSON: {problem}") from None
    return result


_current: ContextVar[JobContext] = ContextVar("taskstore_job")


def current_job() -> JobContext:
    """Return the job that this code runs in. Raises LookupError outside of a job."""
    return _current.get()


def enter(context: JobContext) -> None:
    _current.set(context)


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function and return its result. A coroutine function runs in an event loop of its own."""
    returned = function(*args, **kwargs)
    if not inspect.isawaitable(returned):
        return returned

    import asyncio  # Here, because it would make each fork of a process dearer.

    async def result() -> Any:
        return await returned

    return asyncio.run(result())


IMPORTING = importlib.__file__ or "<frozen"
REGISTERED = "taskstore.jobs.registry:Registered"


def resolve(runner: Sequence[str]) -> Functions:
    """Call `module:callable`, the first item, with the other items. Raises what the import or the call raises."""
    resolver, *words = runner
    module, _, name = resolver.partition(":")
    functions: Functions = getattr(importlib.import_module(module), name)(*words)
    return functions


def why_not(problem: Exception) -> str:
    """Explain to people why functions could not be loaded, with the place in their code."""
    if isinstance(problem, UnknownFunction):
        return str(problem)
    ours = str(Path(__file__).parent)
    frames = traceback.extract_tb(problem.__traceback__)
    others = (ours, str(Path(ours).parent / "worker"), "<frozen", IMPORTING)
    places = [(each.filename, each.lineno) for each in frames if not each.filename.startswith(others)]
    # Those of the project, if there are any: Django's are in between. The place of a syntax error is in no frame.
    places = [place for place in places if "site-packages" not in place[0]] or places
    if isinstance(problem, SyntaxError) and problem.filename:
        places.append((problem.filename, problem.lineno))
    where = f" ({places[-1][0]}, line {places[-1][1]})" if places else ""
    return f"{type(problem).__name__}: {problem}{where}"


Runnable = Callable[[JobContext, Sequence[Any], Mapping[str, Any]], Any]


class UnknownFunction(LookupError):
    """A job names a function that this worker does not run. The message lists those that it runs."""


class Functions(Protocol):
    """The lookup of functions for a worker."""

    def find(self, function: str) -> Runnable:
        """Return what runs a function and returns its result as JSON. Raises UnknownFunction."""

    def retries(self, function: str) -> Retries:
        """Return what follows when the function fails."""

    def declared(self) -> Mapping[str, JobOptions]:
        """Return the options that functions declare, by the name of the function."""


class Options(TypedDict, total=False):
    """The options of jobs; see RunOptions. None: the default. Durations are a timedelta, or seconds."""

    max_attempts: int | None
    timeout: timedelta | float | None
    memory_bytes: int | None
    on_lost: Literal["retry", "fail"] | None
    max_lost: int | None
    ignore_result: bool | None
    soft_time_limit: timedelta | float | None
    expires: timedelta | float | None


class GivenOptions(Options, total=False):
    backoff: timedelta | float | None


class FunctionOptions(Options, Rules):
    """The options of jobs, and what follows when the function fails."""


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

JsonDefault = Callable[[Any], Any] | None  # As of `json.dumps`.


def as_json(value: T, default: JsonDefault) -> T:
    """Return the value with what `default` makes of parts that are not JSON. None: it is left as it is."""
    if default is None:
        return value
    made: T = json.loads(json.dumps(value, default=default))
    return made


@dataclass(frozen=True, kw_only=True)
class JobFunction(Generic[P, R]):
    """A function that workers run as a job. Calling it directly runs it in this process."""

    path: str  # Its dotted path: `module.qualname`.
    function: Callable[P, R]
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    options: JobOptions = field(default_factory=JobOptions)
    retries: Retries = DEFAULT
    at_ms: int = 0  # 0: now.
    unique: str | None = None  # As in `Jobs.enqueue`.
    unique_for_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    json_default: JsonDefault = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        at: datetime | None = None,
        unique: str | None = None,
        unique_for: timedelta | float | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        **options: Unpack[GivenOptions],
    ) -> JobFunction[P, R]:
        """Return a copy that is enqueued with other settings.

        `at`: when the job is due; raises ValueError without a time zone. `unique`: a key; while an unfinished job of
        the queue has it, `enqueue` returns that job. `unique_for`: how long the key stays reserved even if the job
        finishes. `labels`: in addition to those that it has. The options are those of `job`.
        """
        if at is not None and not isinstance(at, datetime):
            raise TypeError(f"at must be a datetime with a time zone, not {at!r:.100}")
        if at is not None and at.tzinfo is None:
            raise ValueError(f"at must have a time zone, such as tzinfo=UTC; {at} has none")
        return replace(
            self,
            queue=checked(queue) if queue is not None else self.queue,
            priority=self.priority if priority is None else priority,
            at_ms=self.at_ms if at is None else round(at.timestamp() * 1000),
            unique=self.unique if unique is None else unique,
            unique_for_ms=self.unique_for_ms if unique_for is None else milliseconds("unique_for", unique_for),
            labels={**self.labels, **checked_labels(labels)},
            options=structs.replace(self.options, **taken(options)),
        )

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> JobCall:
        """Return a job that calls the function with these arguments, for `client.jobs.enqueue_many`."""
        return JobCall(
            function=self.path,
            args=[self._argument(f"args[{place}]", each) for place, each in enumerate(args)],
            kwargs={name: self._argument(name, each) for name, each in kwargs.items()},
            queue=self.queue,
            at_ms=self.at_ms,
            priority=self.priority,
            options=self.options,
            unique=self.unique,
            unique_for_ms=self.unique_for_ms,
            labels=self.labels,
        )

    s = call  # As it is called in Celery.

    def _argument(self, name: str, value: Any) -> Any:
        try:
            return as_json(value, self.json_default)
        except Exception as problem:
            raise TypeError(f"{name} must be JSON, and json_default can't convert it: {problem}") from problem

    def enqueue(self, client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a job that calls the function with these arguments, which must be JSON. Raises InvalidInput."""
        refuse_no_client(client)
        return client.jobs.enqueue(**vars(self.call(*args, **kwargs)))


def run_as_job(
    found: JobFunction[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    return result_of(context, call(found.function, args, kwargs), partial(as_json, default=found.json_default))


functions: dict[str, JobFunction[..., Any]] = {}  # The functions decorated with `job`, by path.


@overload
def job(function: Callable[P, R], /) -> JobFunction[P, R]: ...


@overload
def job(
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    labels: Mapping[str, str] = NO_LABELS,
    json_default: JsonDefault = None,
    **options: Unpack[FunctionOptions],
) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...


def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    labels: Mapping[str, str] = NO_LABELS,
    json_default: JsonDefault = None,
    **options: Unpack[FunctionOptions],
) -> Any:
    """Decorate a function so that workers can run it: `@job`, or `@job(queue="mail", max_attempts=3)`.

    `backoff`, `jitter`, `retry_on`, `fail_on` and `discard_on` say what follows when the function fails; see Retries.
    Options: `max_attempts`, `timeout`, `memory_bytes`, `on_lost` ("retry" or "fail"), `max_lost`, `ignore_result`,
    `soft_time_limit` and `expires`; see RunOptions. They hold for all jobs that are enqueued without these options.
    `labels`: of its jobs, by which they are found, limited and cancelled. `json_default` converts arguments and results
    that are not JSON, as the `default` of `json.dumps`: `json_default=str` for dates, decimal numbers and UUIDs.

    Raises TypeError for an unknown option; ValueError for an invalid one, for an invalid queue name, for a function
    that a worker could not find by its name, and for a name that another function has.
    """

    checked(queue)
    own_labels = checked_labels(labels)
    given, retries = described(options)

    def register(function: Callable[..., Any]) -> JobFunction[..., Any]:
        path = free_path_of(function)
        made = JobFunction(
            path=path,
            function=function,
            queue=queue,
            priority=priority,
            labels=own_labels,
            options=given,
            retries=retries,
            json_default=json_default,
        )
        functions[made.path] = made
        return made

    return register if function is None else register(function)


def free_path_of(function: Callable[..., Any]) -> str:
    """Return the dotted path of a function that may become a job. Raises ValueError."""
    path = path_of(function)
    if "<" in path:
        raise ValueError(
            f"a worker can't find {path} by its name: define the function at the top level of a module, "
            "and use functools.wraps in decorators below @job"
        )
    known = functions.get(path)
    # The same function again, when its module is reloaded.
    if known and place_of(known.function) != place_of(function):
        raise ValueError(
            f"{path} is the name of another job already, at {place_of(known.function)}: "
            "give each function its own name, and use functools.wraps in decorators below @job"
        )
    return path


def place_of(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else repr(function)


def checked(queue: str) -> str:
    if why := why_no_queue(queue):
        raise ValueError(f"the queue {queue!r} {why}")
    return queue


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of jobs. Raises ValueError."""
    for name, why in wrong_labels(labels):
        raise ValueError(f"{name} {why}")
    return dict(labels)


def path_of(function: Callable[..., Any]) -> str:
    """Return the dotted path by which a worker that imports the function's module knows it."""
    module = function.__module__
    if module == "__main__":  # The running script: use the name by which others import it.
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{function.__qualname__}"


class Registered:
    """The functions decorated with `job` in these modules, which it imports."""

    def __init__(self, *modules: str) -> None:
        for module in modules:
            importlib.import_module(module)
        if not functions:
            raise UnknownFunction(f"no function in {', '.join(modules)} is a job: decorate functions with @job")

    def retries(self, function: str) -> Retries:
        return functions[function].retries if function in functions else DEFAULT

    def declared(self) -> Mapping[str, JobOptions]:
        return {path: function.options for path, function in functions.items()}

    def find(self, function: str) -> Runnable:
        found = functions.get(function)
        if found is None:
            raise UnknownFunction(f"this worker does not run {function}, only {', '.join(sorted(functions))}")

        return partial(run_as_job, found)
