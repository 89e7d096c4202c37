"""What runs in the process of a job: it receives jobs, calls their functions, and answers each."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from ..types.job_record import LONGEST_LOG, How, JobOptions
from ..types.texts import LONGEST_MESSAGE, clean
from ..worker.children import EXIT_S, INTERRUPT, Desk, NotPrepared, Serve, Stopped
from ..worker.handlers import DEFAULT, Report, Retries, Then, unreported
from .registry import (
    Functions,
    JobContext,
    JobFunction,
    ResultNotJson,
    Runnable,
    SoftTimeLimit,
    UnknownFunction,
    enter,
    resolve,
    run_as_job,
    why_not,
)

OUR_OWN = ("tasks_app.", "taskstore.", "asyncio.")

REHEARSALS = 16
LONGEST_TIMER_S = 2**30  # 34 years. The system takes not much more.

Answer = dict[str, Any]
work = SimpleNamespace(is_interruptible=False)  # Of this process.


class Assignment(NamedTuple):
    """A job to run, as sent to its process."""

    function: str
    job_id: int = 0
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    attempt: int = 1
    is_last: bool = False
    after_batch: int | None = None
    worker: str = ""
    backoff_ms: int = 0
    ignore_result: bool = False
    soft_limit_ms: int | None = None
    has_limit: bool = False  # Of time: otherwise what it leaves running has EXIT_S.


class ThreadsLeft(Exception):
    """A job has returned, but threads that it started did not end in time."""


def prepare(runner: Sequence[str], jobs: int) -> tuple[Serve, Mapping[str, JobOptions]]:
    """Return the function that runs up to `jobs` jobs in a process, and the options that functions declare.

    Raises NotPrepared.
    """
    try:
        functions = resolve(runner)
    except Exception as problem:
        raise NotPrepared(why_not(problem)) from problem
    if threading.active_count() == 1:  # Otherwise nothing is forked, and jobs wait for the threads at their end.
        rehearse()
    return partial(run_jobs, functions, jobs), functions.declared()


class Nothing:
    """The functions of a rehearsal."""

    def find(self, function: str) -> Runnable:
        return partial(run_as_job, JobFunction(path=function, function=bool))

    def retries(self, function: str) -> Retries:
        return DEFAULT

    def declared(self) -> Mapping[str, JobOptions]:
        return {}


def rehearse() -> None:
    """Do what each job does, because what Python notes at the first times would be noted by each fork, in a copy."""
    nothing = Nothing()
    for _ in range(REHEARSALS):
        packed(answer_to(Assignment(function=""), nothing))
        flush()


def run_jobs(functions: Functions, jobs: int, desk: Desk) -> None:
    process = os.getpid()
    for left in range(jobs - 1, -1, -1):
        message = desk.next()
        if message is None:
            return
        answer = answer_to(pickle.loads(message), functions, desk.report)  # noqa: S301 - of the worker.
        has_left_threads = answer.get("error", {}).get("type") == ThreadsLeft.__name__
        flush()
        if os.getpid() != process:
            os._exit(0)  # It is a fork of the job that has returned, too.
        desk.answer(packed(answer), is_last=not left or has_left_threads)
        if has_left_threads:
            os._exit(0)  # They would keep the process from ending.


def answer_to(
    assigned: Assignment, functions: Functions, report: Report = unreported, *, is_alone: bool = True
) -> Answer:
    """Run the job and return its answer. An exception of any kind becomes a failure.

    `is_alone`: in a process of its own, where a signal interrupts the job and its threads have to end with it.
    """
    try:
        with interrupted_by_signal(assigned.soft_limit_ms) if is_alone else nullcontext():
            context = JobContext(
                job_id=assigned.job_id,
                attempt=assigned.attempt,
                is_last=assigned.is_last,
                worker=assigned.worker,
                after_batch=assigned.after_batch,
                ignore_result=assigned.ignore_result,
                report=report,
            )
            enter(context)
            try:
                run = functions.find(assigned.function)
            except UnknownFunction as problem:
                return {"how": How.GIVEN_BACK, "error": described(problem), "then": Then.LEAVE}
            result = run(context, assigned.args, assigned.kwargs)
            if is_alone:
                signal.setitimer(signal.ITIMER_REAL, 0)  # No job could catch it any more.
                join_threads(math.inf if assigned.has_limit else EXIT_S)
        return {"how": How.SUCCEEDED, "result": result}
    except BaseException as problem:
        return {"how": How.FAILED, "error": described(problem), **then(problem, assigned, functions)}


def then(problem: BaseException, assigned: Assignment, functions: Functions) -> Answer:
    """Return what follows when the function raised this, by the rules that it declares."""
    if isinstance(problem, Stopped):
        return {}
    if isinstance(problem, ResultNotJson):
        return {"then": Then.FAIL}
    try:
        retries = functions.retries(assigned.function)
        if isinstance(retries.backoff, timedelta):  # The job may have been enqueued with another one.
            retries = replace(retries, backoff=timedelta(milliseconds=assigned.backoff_ms))
        return {"then": retries.after(problem), "in_ms": retries.pause_ms(assigned.attempt, problem)}
    except Exception:  # Of a function for the backoff.
        traceback.print_exc()
        return {}


def interrupted(number: int, frame: FrameType | None) -> None:
    if work.is_interruptible:
        raise Stopped("it was interrupted")


@contextmanager
def interrupted_by_signal(soft_limit_ms: int | None) -> Iterator[None]:
    """Raise Stopped at an interrupt, so that the job can clean up, and SoftTimeLimit once after that time."""

    def warn(number: int, frame: FrameType | None) -> NoReturn:
        raise SoftTimeLimit(f"it took longer than {(soft_limit_ms or 0) / 1_000:g} s")

    signal.signal(INTERRUPT, interrupted)  # The job before may have changed that.
    try:
        work.is_interruptible = True
        if soft_limit_ms:
            signal.signal(signal.SIGALRM, warn)
            signal.setitimer(signal.ITIMER_REAL, min(soft_limit_ms / 1_000, LONGEST_TIMER_S))
        yield
    finally:
        work.is_interruptible = False
        if soft_limit_ms:
            signal.setitimer(signal.ITIMER_REAL, 0)


def join_threads(patience_s: float) -> None:
    """Wait for the threads that the job started, as at the end of a program. Raises ThreadsLeft."""
    until = time.monotonic() + patience_s
    try:
        while left := threads():
            left[0].join(min(1, until - time.monotonic()))
            if time.monotonic() >= until:
                raise Stopped
    except Stopped:
        names = ", ".join(thread.name for thread in threads())
        raise ThreadsLeft(f"it has returned, but not in time the threads that it started: {names}") from None


def threads() -> list[threading.Thread]:
    ours = threading.current_thread()
    return [thread for thread in threading.enumerate() if thread is not ours and not thread.daemon]


def described(problem: BaseException) -> Mapping[str, str]:
    """Return the members of a JobError, whose traceback contains only the frames of the job's own code."""
    kind = type(problem)
    is_ours = isinstance(problem, ResultNotJson | ThreadsLeft | Stopped | SoftTimeLimit | UnknownFunction)
    name = kind.__qualname__ if is_ours or kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(problem)
    except Exception as worse:
        message = f"(it has no text: {type(worse).__name__})"
    return {
        "type": clean(name),
        "message": clean(message, LONGEST_MESSAGE),
        "traceback": clean(_traceback(problem), LONGEST_LOG),
    }


def _traceback(problem: BaseException) -> str:
    frames = problem.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(OUR_OWN):
        frames = frames.tb_next
    if isinstance(problem, ResultNotJson | ThreadsLeft | UnknownFunction) or frames is None:
        return ""
    try:
        return "".join(traceback.format_exception(type(problem), problem, frames))
    except Exception:
        return "".join(traceback.format_tb(frames))


def packed(message: Any) -> bytes:
    """Encode a message as JSON. ASCII, because text may contain lone surrogates."""
    return ENCODER.encode(message).encode("ascii")


ENCODER = json.JSONEncoder(separators=(",", ":"))


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
