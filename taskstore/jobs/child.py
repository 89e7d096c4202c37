"""The process in which jobs run. It receives assignments from the fork server and answers each."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from ..types.job_record import LONGEST_LOG, How
from ..worker.handlers import Report, unreported
from .messages import Assignment, Setup, packed, read
from .processes import memory_limit
from .registry import Functions, JobContext, Stopped, enter, resolve, why_not

LONGEST_TEXT = LONGEST_LOG  # Characters of a message or a traceback.
OUR_OWN = ("tasks_app.", "asyncio.")

Answer = dict[str, Any]


class ResultNotJson(Exception):
    """A function returned a value that JSON can't represent."""


def run_jobs(end: socket.socket, functions: Functions, jobs: int) -> NoReturn:
    """Run up to `jobs` jobs, one after the other, and end the process. No exception leaves this function."""
    code = 1
    sending = threading.Lock()

    def report(key: int, done: float, text: str) -> None:
        with sending:
            end.sendall(packed({"progress": key, "done": done, "text": text}))

    try:
        with end.makefile("rb") as stream:
            for _ in range(jobs):
                message = read(stream)
                if message is None:
                    break
                assigned = Assignment(**message)
                answer = packed(answer_to(assigned, functions, partial(report, assigned.key)))
                _flush()
                with sending:
                    end.sendall(answer)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        # Skip exit handlers, which belong to the server that this process is a fork of.
        os._exit(code)


def answer_to(assigned: Assignment, functions: Functions, report: Report = unreported) -> Answer:
    """Run the job and return its answer. An exception of any kind becomes a failure."""
    try:
        with memory_limit(assigned.memory_bytes), _stopped_by_sigterm():
            context = JobContext(
                job_id=assigned.job_id,
                attempt=assigned.attempt,
                is_last=assigned.is_last,
                worker=assigned.worker,
                report=report,
            )
            enter(context)
            result = functions.find(assigned.function)(context, assigned.args, assigned.kwargs)
        try:
            json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            raise ResultNotJson(f"the result must be JSON: {problem}") from None
        return {"how": How.SUCCEEDED, "result": result}
    except BaseException as problem:
        how = How.DIED if isinstance(problem, Stopped) else How.FAILED
        return {"how": how, "error": described(problem, assigned)}


class _stopped_by_sigterm:  # noqa: N801 - used like a function.
    """Raise Stopped in the job on SIGTERM, so that it can clean up."""

    def __enter__(self) -> None:
        def stop(number: int, frame: FrameType | None) -> NoReturn:
            raise Stopped("its process received SIGTERM")

        signal.signal(signal.SIGTERM, stop)

    def __exit__(self, *_: object) -> None:
        # Not the previous handler: the job may have set its own.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def described(problem: BaseException, assigned: Assignment) -> Mapping[str, str]:
    """Return the members of a JobError, whose traceback contains only the frames of the job's own code."""
    if isinstance(problem, MemoryError) and assigned.memory_bytes is not None and not problem.args:
        problem.args = (f"it needs more than the {assigned.memory_bytes} bytes that its process may have",)
    ours = isinstance(problem, ResultNotJson | Stopped)
    kind = type(problem)
    name = kind.__qualname__ if ours or kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(problem)
    except Exception as worse:
        message = f"(it has no text: {type(worse).__name__})"
    return {"type": name, "message": _readable(message), "traceback": _readable(_traceback(problem))}


def _traceback(problem: BaseException) -> str:
    frames = problem.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(OUR_OWN):
        frames = frames.tb_next
    if isinstance(problem, ResultNotJson) or frames is None:
        return ""
    try:
        return "".join(traceback.format_exception(type(problem), problem, frames))
    except Exception:
        return "".join(traceback.format_tb(frames))


def _readable(text: str) -> str:
    """Return the end of the text, with what UTF-8 can't encode escaped."""
    return text[-LONGEST_TEXT:].encode(errors="backslashreplace").decode()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def main(arguments: list[str]) -> None:
    """Run jobs in a new interpreter, for modules that don't survive a fork.

    Arguments: the descriptor of the socket to the fork server, and a Setup as JSON.
    """
    descriptor, words = arguments
    end, setup = socket.socket(fileno=int(descriptor)), Setup(**json.loads(words))
    try:
        functions = resolve(setup.runner)
    except Exception as problem:
        end.sendall(packed({"problem": why_not(problem)}))
        return
    end.sendall(packed({"ready": True, "threads": 1}))
    run_jobs(end, functions, setup.jobs_per_process)
