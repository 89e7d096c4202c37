"""The fork server of a worker. It starts the processes of jobs, assigns jobs to them, and collects their output."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from ..types.job_record import LONGEST_LOG, How, JobError
from . import child
from .messages import Assignment, Channel, RunOutcome, Setup, now_ms, tree_of
from .processes import Pipe, die_with, end_group, prefer_for_oom_kill
from .registry import Functions, resolve, why_not

BYTES_KEPT = 4 * LONGEST_LOG  # A character has at most 4 bytes in UTF-8.


class Output(Pipe):
    """The standard output and error of a process."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.has_news = False
        self._end = b""

    def take(self, some: bytes) -> None:
        self._end = (self._end + some)[-BYTES_KEPT:]
        self.has_news = True

    def text(self) -> str:
        """Return the end of the output. Invalid UTF-8 becomes the replacement character."""
        self.has_news = False
        return self._end.decode(errors="replace")[-LONGEST_LOG:]

    def forget(self) -> None:
        self._end = b""
        self.has_news = False

    def close(self) -> None:
        os.close(self.descriptor)


ERROR_TYPES = {How.TIMED_OUT: "TimedOut", How.GIVEN_BACK: "GivenBack"}  # Of jobs that were interrupted.


class Process:
    """A child process and the job that it runs."""

    def __init__(self, pid: int, end: socket.socket, output: int) -> None:
        self.pid = pid
        self.channel = Channel(end)
        self.output = Output(output)
        self.job: Assignment | None = None
        self.progress: dict[str, Any] | None = None  # The last report of its job that the worker does not know.
        self.jobs_done = 0
        self.interrupted: How | None = None  # Why its job was interrupted.
        self.interruption = ""  # The message of the job's error.
        self.ends_at: float | None = None  # When to interrupt its job; after that: when to kill it.
        self.is_leaving = False  # It was killed and gets no further job.

    @property
    def is_idle(self) -> bool:
        return self.job is None and not self.is_leaving

    def assign(self, job: Assignment) -> None:
        self.job, self.started_ms = job, now_ms()
        self.ends_at = None if job.timeout_ms is None else time.monotonic() + job.timeout_ms / 1000
        self.output.forget()
        self.progress = None
        self.channel.send(tree_of(job))

    def interrupt(self, why: How, text: str, kill_after_ms: int) -> None:
        """Raise an exception in the job by SIGTERM; kill it if it does not end in time."""
        self.interrupted, self.interruption = why, text
        self.ends_at = time.monotonic() + kill_after_ms / 1000
        end_group(self.pid, signal.SIGTERM)

    def outcome(self, how: How, error: JobError | None, result: Any = None) -> RunOutcome:
        assert self.job is not None  # noqa: S101 - for the types.
        self.output.read()
        return RunOutcome(
            key=self.job.key,
            how=how,
            pid=self.pid,
            started=self.started_ms,
            ended=now_ms(),
            result=result,
            error=error,
            log=self.output.text(),
        )

    def end(self) -> None:
        self.is_leaving = True
        self.ends_at = None
        end_group(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self.channel.end.close()
        self.output.close()


LOG_EVERY_S = 1.0


class ForkServer:
    def __init__(self, control: socket.socket, setup: Setup) -> None:
        self._control = Channel(control)
        self._setup = setup
        self._functions: Functions | None = None  # Spawned processes load their own.
        self._is_prepared = False  # Whether the worker has been sent "ready" or a problem.
        self._processes: dict[int, Process] = {}  # By pid.
        self._waiting: deque[Assignment] = deque()
        self._selector = selectors.DefaultSelector()
        self._next_logs_at = 0.0
        self._watch(control, self._listen)
        # The SIGCHLD of a child makes this pipe readable.
        self._wakeups, wake = os.pipe()
        for descriptor in (self._wakeups, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._watch(self._wakeups, self._wake_up)
        self._someone_ended = False

    def run(self) -> NoReturn:
        self._prepare()
        while self._control.is_open:
            for key, _ in self._selector.select(self._until_next_s()):
                key.data()
            # After reading, because ended processes may have left messages.
            self._reap()
            self._start_what_waits()
            self._check_deadlines()
            self._send_what_waits()
        for process in self._processes.values():
            process.end()
        os._exit(0)  # Skip the exit handlers and non-daemon threads of the jobs' modules.

    def _prepare(self) -> None:
        if self._setup.spawn:
            self._fork()  # It reports whether the imports succeeded, and runs the first job.
            return
        self._is_prepared = True
        try:
            self._functions = resolve(self._setup.runner)
        except Exception as problem:
            self._control.send({"problem": why_not(problem)})
            self._control.is_open = False
            return
        # Keep the garbage collector of the forks from touching, and so copying, the shared pages.
        gc.collect()
        gc.freeze()
        self._control.send({"ready": True, "threads": threading.active_count()})

    def _listen(self) -> None:
        for message in self._control.receive():
            if "stop" in message:
                self._stop(message["stop"])
            elif "take_back" in message:
                self._take_back(message["take_back"])
            else:
                self._waiting.append(Assignment(**message))

    def _start_what_waits(self) -> None:
        busy = sum(process.job is not None for process in self._processes.values())
        for _ in range(min(self._setup.processes - busy, len(self._waiting))):
            job = self._waiting.popleft()
            try:
                process = next((each for each in self._processes.values() if each.is_idle), None) or self._fork()
            except OSError as problem:
                error = JobError(type="OSError", message=f"no process could be started for it: {problem}")
                self._control.send(tree_of(RunOutcome(key=job.key, how=How.LOST, error=error)))
                continue
            process.assign(job)
            self._control.send({"started": job.key, "pid": process.pid})

    def _take_back(self, key: int) -> None:
        """Return a job to the worker unless it has started."""
        for job in [job for job in self._waiting if job.key == key]:
            self._waiting.remove(job)
            self._control.send(tree_of(RunOutcome(key=key, how=How.GIVEN_BACK)))

    def _stop(self, key: int) -> None:
        self._take_back(key)
        for process in self._processes.values():
            if process.job and process.job.key == key and not process.interrupted:
                process.interrupt(How.GIVEN_BACK, "its worker stopped", self._setup.kill_after_ms)

    def _fork(self) -> Process:
        ours, theirs = socket.socketpair()
        output, written = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            os.close(output)
            self._be_a_child(parent, theirs, written)
        theirs.close()
        os.close(written)
        process = self._processes[pid] = Process(pid, ours, output)

        def read_output() -> None:
            if not process.output.read():
                self._selector.unregister(output)

        self._watch(ours, lambda: self._receive(process))
        self._watch(output, read_output)
        return process

    def _be_a_child(self, parent: int, end: socket.socket, output: int) -> NoReturn:
        try:
            os.setsid()  # A process group, so that everything the job starts ends with it.
            die_with(parent)
            prefer_for_oom_kill()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            for key in list(self._selector.get_map().values()):
                os.close(key.fd)  # The server's.
            self._selector.close()
            _redirect_outputs(output)
            if self._functions is None:
                spawn(end, self._setup)
            child.run_jobs(end, self._functions, self._setup.jobs_per_process)
        except BaseException:
            traceback.print_exc()  # Into the log of the job.
            sys.stderr.flush()
        finally:
            os._exit(1)

    def _receive(self, process: Process) -> None:
        try:
            for message in process.channel.receive():
                if "how" in message:
                    error = JobError(**message["error"]) if message.get("error") else None
                    self._report(process, How(message["how"]), error, message.get("result"))
                    if process.interrupted or process.jobs_done >= self._setup.jobs_per_process:
                        process.end()
                    continue
                if "progress" in message:
                    # A thread may outlive its job: the next one must not get its reports.
                    if process.job and message["progress"] == process.job.key:
                        process.progress = message
                    continue
                self._control.send(message)
                self._is_prepared = True
                if "problem" in message and process.job:
                    self._report(process, How.FAILED, JobError(type="NotPrepared", message=message["problem"]))
        except (ValueError, TypeError, KeyError):
            process.end()  # The job wrote to the socket of its process.
        if not process.channel.is_open:
            self._selector.unregister(process.channel.end)

    def _report(self, process: Process, how: How, error: JobError | None, result: Any = None) -> None:
        if process.job is None:
            return
        # A job that succeeded while its worker was stopping counts as done.
        is_done = how is How.SUCCEEDED and process.interrupted is not How.TIMED_OUT
        if process.interrupted and not is_done:
            # The traceback shows where the job was interrupted.
            where = error.traceback if error else ""
            how, result = process.interrupted, None
            error = JobError(type=ERROR_TYPES[how], message=process.interruption, traceback=where)
        self._control.send(tree_of(process.outcome(how, error, result)))
        process.job, process.ends_at = None, None
        process.jobs_done += 1

    def _wake_up(self) -> None:
        os.read(self._wakeups, 4096)
        self._someone_ended = True

    def _reap(self) -> None:
        pids = list(self._processes) if self._someone_ended else []
        self._someone_ended = False
        for pid in pids:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            process = self._processes.pop(pid)
            # Kill what the job started. The group id can't be reused while one of these processes lives.
            end_group(pid, signal.SIGKILL)
            if process.channel.end in self._selector.get_map():
                self._receive(process)  # It may have answered before it died.
            self._report(process, How.DIED, JobError(type="Died", message=cause_of_death(status)))
            if not self._is_prepared:
                process.output.read()
                self._control.send({"problem": f"{cause_of_death(status)}\n{process.output.text()}".rstrip()})
                self._is_prepared = True
            for source in (process.channel.end, process.output.descriptor):
                with suppress(KeyError):
                    self._selector.unregister(source)
            process.close()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for process in self._processes.values():
            if process.ends_at is None or process.ends_at > now:
                continue
            if process.interrupted or process.job is None or process.job.timeout_ms is None:
                process.end()
            else:
                text = f"it took longer than {process.job.timeout_ms / 1000:g} s"
                process.interrupt(How.TIMED_OUT, text, self._setup.kill_after_ms)
        if now >= self._next_logs_at:
            self._next_logs_at = now + LOG_EVERY_S
            for process in self._processes.values():
                # Don't queue logs or reports for a worker that is waiting for the store and does not read.
                if not process.job or self._control.has_more_to_send:
                    continue
                if process.output.has_news:
                    self._control.send({"log": process.job.key, "text": process.output.text()})
                if process.progress:
                    self._control.send(process.progress)
                    process.progress = None

    def _until_next_s(self) -> float | None:
        """Return the time until the next deadline; None: there is none."""
        now = time.monotonic()
        ends = [process.ends_at for process in self._processes.values() if process.ends_at is not None]
        if any(process.output.has_news or process.progress for process in self._processes.values() if process.job):
            ends.append(self._next_logs_at)
        return max(0, min(ends) - now) if ends else None

    def _send_what_waits(self) -> None:
        """Flush all channels, and wait for those that are full to become writable."""
        for channel in (self._control, *(process.channel for process in self._processes.values())):
            channel.flush()
            with suppress(KeyError):
                key = self._selector.get_key(channel.end)
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_more_to_send else 0)
                if key.events != events:
                    self._selector.modify(channel.end, events, key.data)

    def _watch(self, source: socket.socket | int, then: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, then)


def cause_of_death(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        hint = ": by a person, or by the system when memory ran out" if number == signal.SIGKILL else ""
        return f"its process was ended by {name}{hint}"
    return f"its process ended with code {os.WEXITSTATUS(status)} before the function returned"


def _redirect_outputs(output: int) -> None:
    """Send standard output and error of this process to the pipe, line by line, and close standard input."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    # The old stream objects may have been opened for files, and would buffer.
    sys.stdout, sys.stderr = (
        open(standard, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for standard in (1, 2)
    )
    faulthandler.enable()  # Crashes in C code leave a traceback in the log.


def interpreter(module: str, *arguments: str) -> list[str]:
    """Return the command of a new Python with this one's module path that runs the module's `main`."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-c", start, *arguments]


def spawn(end: socket.socket, setup: Setup) -> NoReturn:
    end.set_inheritable(True)
    words = interpreter("taskstore.jobs.child", str(end.fileno()), json.dumps(tree_of(setup)))
    os.execv(words[0], words)  # noqa: S606 - there is no shell.


def main(arguments: list[str]) -> None:
    """Run a fork server. Arguments: the worker's process id, the descriptor of its socket, and a Setup as JSON."""
    parent, descriptor, setup = arguments
    die_with(int(parent))
    # The worker handles these signals and decides what happens to its jobs.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ForkServer(socket.socket(fileno=int(descriptor)), Setup(**json.loads(setup))).run()
