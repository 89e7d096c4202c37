"""Run one command and capture its output."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import time
from typing import Protocol

from ..jobs.processes import AT_ONCE, Pipe
from ..types.command_record import Command, Output, Run
from ..types.progress import TEXT_LENGTH, problems_of
from . import descendants
from .messages import Clock, Setup


class Capture(Pipe):
    """The output of a command. Keeps up to `most_bytes`: half from the beginning, half from the end.

    `progress` is shown all that is read.
    """

    def __init__(self, descriptor: int, most_bytes: int, progress: ProgressLines | None = None) -> None:
        super().__init__(descriptor)
        self._progress = progress
        self.written = 0  # All bytes so far, kept or not.
        self._half = most_bytes // 2
        self._head, self._tail = bytearray(), bytearray()

    def say(self, line: str) -> None:
        """Append a line of the worker."""
        before = self._tail or self._head
        is_begun = bool(before) and not before.endswith(b"\n")
        self.take(("\n" * is_begun + line + "\n").encode())

    def output(self) -> Output:
        head, tail = bytes(self._head), bytes(self._tail[max(0, len(self._tail) - self._half) :])
        if self.written == len(head) + len(tail):
            return Output.of(head + tail)
        head, tail = without_cut_end(head), without_cut_start(tail)
        return Output.of(head + tail, cut_at=len(head), missing=self.written - len(head) - len(tail))

    def end(self, most_bytes: int) -> Output:
        """Return the last bytes, for the live output."""
        is_whole = self.written == len(self._head) + len(self._tail)
        end = bytes(self._head + self._tail if is_whole else self._tail)[-most_bytes:]
        end = without_cut_start(without_cut_end(end) if self.written > len(end) else end)
        return Output.of(end, missing=self.written - len(end))

    def close(self) -> None:
        os.close(self.descriptor)

    def take(self, some: bytes) -> None:
        if self._progress:
            self._progress.take(some)
        self.written += len(some)
        room = self._half - len(self._head)
        self._head += some[:room]
        self._tail += some[room:] if room else some
        if len(self._tail) > 2 * self._half + AT_ONCE:  # Rarely, because it moves the rest in memory.
            del self._tail[: -self._half]


LONGEST_LINE = 2_048  # Bytes of a line with progress.
MARK = b"::progress"
PROGRESS_LINE = re.compile(rb"::progress[ \t]+(\S+)(?:[ \t]+(.*))?")


class ProgressLines:
    """Finds lines such as `::progress 0.42 page 7 of 20` in an output. `latest`: the last one that is valid."""

    def __init__(self) -> None:
        self.latest: tuple[float, str] | None = None
        self._rest = b""  # The line that has not ended.

    def take(self, some: bytes) -> None:
        text = self._rest + some
        end = text.rfind(b"\n") + 1
        # Outputs may be large, so most are only searched for the mark. The last valid line counts.
        place = text.rfind(MARK, 0, end)
        while place >= 0:
            if place == 0 or text[place - 1 : place] == b"\n":
                found = progress_in(text[place : text.index(b"\n", place)])
                if found:
                    self.latest = found
                    break
            place = text.rfind(MARK, 0, place)
        rest = text[end:]
        # A longer line has no progress: what follows is not the beginning of a line.
        self._rest = rest if len(rest) <= LONGEST_LINE else b"-"


def progress_in(line: bytes) -> tuple[float, str] | None:
    """Return the progress that a line reports; None if it is invalid. A text that is too long is cut."""
    match = PROGRESS_LINE.fullmatch(line.rstrip())
    if not match or len(line) > LONGEST_LINE:
        return None
    try:
        done = float(match[1])
    except ValueError:
        return None
    text = (match[2] or b"").decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")[:TEXT_LENGTH]
    return None if any(problems_of(done, text)) else (done, text)


def without_cut_end(some: bytes) -> bytes:
    """Drop an incomplete UTF-8 character at the end. Bytes that are not UTF-8 stay unchanged."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(some)
    except UnicodeDecodeError:
        return some
    begun = len(decoder.getstate()[0])
    return some[:-begun] if begun else some


def without_cut_start(some: bytes) -> bytes:
    """Drop an incomplete UTF-8 character at the beginning. Bytes that are not UTF-8 stay unchanged."""
    start = next((place for place, byte in enumerate(some[:4]) if byte & 0xC0 != 0x80), 0)
    try:
        some[start:].decode()
    except UnicodeDecodeError:
        return some
    return some[start:]


# Python or the runner changed these signals; the shell must start with the defaults.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)
LINGER_S = 0.5  # Background processes may finish after the shell: bash does not wait for `>(gzip > file)`.
MEMORY_CHECK_S = 0.05
LEFTOVER_CHECK_S = 0.01
REPORT_S = 0.5
CAN_NOT_RUN = 126  # The exit code that shells use.
MEGABYTE = 2**20


class Observer(Protocol):
    def on_message(self, execution: Execution) -> None:
        """Handle input on the watched descriptor. May kill the execution."""
        ...

    def on_progress(self, execution: Execution) -> None:
        """Called every half second while the command runs."""
        ...


class Execution:
    """One run of a command, with its outputs in `out` and `err`."""

    def __init__(self, command: Command, setup: Setup, limit_s: float, clock: Clock) -> None:
        self._command, self._setup, self._limit_s, self._clock = command, setup, limit_s, clock
        self._verdict = ""  # Why it failed, for its standard error.
        self._code = 0
        self._ended_at: float | None = None
        self.left = 0  # The number of its processes that outlived it and were killed.

    def run(self, watched: int, observer: Observer) -> Run:
        """Run the command until none of its processes is left. `watched`: a descriptor with input for the observer."""
        self.started, self._started_at = self._clock.now_s(), time.monotonic()
        out, theirs_out = os.pipe()
        err, theirs_err = os.pipe()
        self._progress = ProgressLines()
        self.out = Capture(out, self._setup.output_bytes, self._progress)
        self.err = Capture(err, self._setup.output_bytes)
        try:
            self._start(theirs_out, theirs_err)
            if self._ended_at is None:
                self._supervise(watched, observer)
            ended_at = self._ended_at or time.monotonic()
            for capture in (self.out, self.err):
                capture.read()  # All writers have ended, so this is the rest.
            if self._verdict:
                self.err.say(self._verdict)
            return Run(
                worker=self._setup.worker,
                started=self.started,
                ended=self._clock.now_s(),
                duration_ms=round((ended_at - self._started_at) * 1_000),
                exit_code=self._code,
                out=self.out.output(),
                err=self.err.output(),
            )
        finally:
            self.out.close()
            self.err.close()

    @property
    def progress(self) -> tuple[float, str] | None:
        """The last progress that the command has written to its standard output."""
        return self._progress.latest

    def kill(self, verdict: str) -> None:
        """Kill the command with all its descendants."""
        self._verdict, self._code = verdict, 128 + signal.SIGKILL
        self._ended_at = time.monotonic()
        descendants.kill_all()

    def _start(self, out: int, err: int) -> None:
        shell = self._setup.shell
        try:
            self._pid = os.posix_spawn(
                shell,
                [shell, "-c", self._command.cmd],
                self._setup.env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, out, 1),
                    (os.POSIX_SPAWN_DUP2, err, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        except (OSError, ValueError) as problem:  # A NUL in the line is a ValueError.
            self._verdict, self._code = f"could not be started: {problem}", CAN_NOT_RUN
            self._ended_at = time.monotonic()
        finally:
            os.close(out)
            os.close(err)

    def _supervise(self, watched: int, observer: Observer) -> None:
        end = os.pidfd_open(self._pid)
        poller = select.poll()
        for descriptor in (self.out.descriptor, self.err.descriptor, end, watched):
            poller.register(descriptor, select.POLLIN)
        self._checks_memory_at = self._started_at + MEMORY_CHECK_S
        self._reports_at = self._started_at + REPORT_S
        try:
            while not self._is_over():
                readable = {descriptor for descriptor, _ in poller.poll(self._patience_ms())}
                for capture in (self.out, self.err):
                    if capture.descriptor in readable and not capture.read():
                        poller.unregister(capture.descriptor)
                if watched in readable:
                    observer.on_message(self)
                if end in readable and self._ended_at is None:
                    poller.unregister(end)
                    self._end()
                self._check_limits(observer)
        finally:
            os.close(end)

    def _is_over(self) -> bool:
        if self._ended_at is None:
            return False
        if not descendants.are_there():
            return True
        if time.monotonic() > self._ended_at + LINGER_S:
            self.left = descendants.kill_all()
            return True
        return False

    def _patience_ms(self) -> float:
        if self._ended_at is not None:
            return LEFTOVER_CHECK_S * 1_000
        next_s = min(self._reports_at, self._started_at + self._limit_s)
        if self._setup.memory_bytes is not None:
            next_s = min(next_s, self._checks_memory_at)
        return max(0.0, next_s - time.monotonic()) * 1_000 + 1

    def _end(self) -> None:
        """Record the exit code of the shell."""
        _, status = os.waitpid(self._pid, 0)
        self._ended_at = time.monotonic()
        code = os.waitstatus_to_exitcode(status)
        if code:
            self._verdict = f"ended with {code}" if code > 0 else f"killed by signal {-code}"
        self._code = code if code >= 0 else 128 - code

    def _check_limits(self, observer: Observer) -> None:
        now, most_bytes = time.monotonic(), self._setup.memory_bytes
        if self._ended_at is not None:
            return
        if now > self._started_at + self._limit_s:
            self.kill(f"took longer than {self._limit_s:g} s and was killed")
        elif most_bytes is not None and now > self._checks_memory_at:
            self._checks_memory_at = now + MEMORY_CHECK_S
            mine = list(descendants.descendants(os.getpid()))
            # The resident size is cheap to read and never smaller than the exact one.
            if descendants.resident_bytes(mine) > most_bytes and descendants.memory_bytes(mine) > most_bytes:
                self.kill(f"used more than {most_bytes / MEGABYTE:g} MiB and was killed")
        if now > self._reports_at:
            self._reports_at = now + REPORT_S
            descendants.reap_all_but(self._pid)
            observer.on_progress(self)
