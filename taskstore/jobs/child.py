"""The process that a job runs in: it takes assignments from the fork server, and answers each."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, BinaryIO, NoReturn

from ..types.job_record import LONGEST_LOG, How
from .messages import Assignment, Setup, packed, read
from .processes import memory_limit
from .registry import Functions, JobContext, Stopped, enter, resolve, why_not

LONGEST_TEXT = LONGEST_LOG  # Characters of a message or a traceback.
OUR_OWN = ("tasks_app.", "asyncio.")

Answer = dict[str, Any]


class ResultNotJson(Exception):
    """A function returned what JSON can't say."""


def work_off(end: socket.socket, functions: Functions, jobs: int) -> NoReturn:
    """Run so many jobs, one after the other, and end. Nothing gets out of here."""
    code = 1
    try:
        _work_off(end, functions, jobs)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        # What the server would do at its end is not for its copies to do.
        os._exit(code)


def _work_off(end: socket.socket, functions: Functions, jobs: int) -> None:
    with end.makefile("rb") as stream:
        for _ in range(jobs):
            assigned = _next(stream)
            if assigned is None:
                return
            answer = packed(answer_to(assigned, functions))
            _flush()
            end.sendall(answer)


def _next(stream: BinaryIO) -> Assignment | None:
    message = read(stream)
    return None if message is None else Assignment(**message)


def answer_to(assigned: Assignment, functions: Functions) -> Answer:
    """Run the job. Whatever goes wrong is its answer."""
    try:
        with memory_limit(assigned.memory_bytes), _told_to_stop():
            result = _run(assigned, functions)
        return {"how": How.SUCCEEDED, "result": _as_json(result)}
    except BaseException as problem:
        how = How.DIED if isinstance(problem, Stopped) else How.FAILED
        return {"how": how, "error": described(problem, assigned)}


def _run(assigned: Assignment, functions: Functions) -> Any:
    context = JobContext(
        job_id=assigned.job_id, attempt=assigned.attempt, is_last=assigned.is_last, worker=assigned.worker
    )
    enter(context)
    return functions.find(assigned.function)(context, assigned.args, assigned.kwargs)


class _told_to_stop:  # noqa: N801 - used like a function.
    """While entered SIGTERM ends the job as an exception, so that it can clean up."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGTERM, _stop)

    def __exit__(self, *_: object) -> None:
        # A job may have set one of its own.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped("its process received SIGTERM")


def _as_json(result: Any) -> Any:
    try:
        json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise ResultNotJson(f"the result must be JSON: {problem}") from None
    return result


def described(problem: BaseException, assigned: Assignment) -> Mapping[str, str]:
    """As a JobError: with the frames of the job's own code alone."""
    if isinstance(problem, MemoryError) and assigned.memory_bytes is not None and not problem.args:
        problem.args = (f"it needs more than the {assigned.memory_bytes} bytes that its process may have",)
    ours = isinstance(problem, ResultNotJson | Stopped)
    kind = type(problem)
    name = kind.__qualname__ if ours or kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"type": name, "message": _readable(_message(problem)), "traceback": _readable(_traceback(problem))}


def _message(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception as worse:
        return f"(it has no text: {type(worse).__name__})"


def _traceback(problem: BaseException) -> str:
    frames = _jobs_own(problem.__traceback__)
    if isinstance(problem, ResultNotJson) or frames is None:
        return ""
    try:
        return "".join(traceback.format_exception(type(problem), problem, frames))
    except Exception:
        return "".join(traceback.format_tb(frames))


def _jobs_own(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(OUR_OWN):
        frames = frames.tb_next
    return frames


def _readable(text: str) -> str:
    """The end of it, as UTF-8 can say it."""
    return text[-LONGEST_TEXT:].encode(errors="backslashreplace").decode()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def main(arguments: list[str]) -> None:
    """A fresh interpreter, for modules that can't be copied once they are imported: `DESCRIPTOR SETUP`.

    The socket to the fork server, and a Setup as JSON.
    """
    descriptor, words = arguments
    end, setup = socket.socket(fileno=int(descriptor)), Setup(**json.loads(words))
    try:
        functions = resolve(setup.runner)
    except Exception as problem:
        end.sendall(packed({"problem": why_not(problem)}))
        return
    end.sendall(packed({"ready": True, "threads": 1}))
    work_off(end, functions, setup.jobs_per_process)
