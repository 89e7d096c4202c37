"""Run one command and capture its output."""

from __future__ import annotations

import codecs
import os
import select
import signal
import time
from typing import Protocol

from ..types.command_record import Command, Output, Run
from . import descendants
from .clock import Clock
from .messages import Setup

AT_ONCE = 2**16
ROUNDS = 16  # Somebody who never ends writing does not keep us from all else.


class Capture:
    """The reading end of a pipe, and at most so many bytes of what comes out of it."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.written = 0  # Bytes so far.
        self._half = most_bytes // 2
        self._head, self._tail = bytearray(), bytearray()

    def read(self) -> bool:
        """Take in what is there. False: nobody holds the other end any more."""
        for _ in range(ROUNDS):
            try:
                some = os.read(self.descriptor, AT_ONCE)
            except BlockingIOError:
                return True
            if not some:
                return False
            self._take(some)
        return True

    def say(self, line: str) -> None:
        """Add a line of ours."""
        before = self._tail or self._head
        is_begun = bool(before) and not before.endswith(b"\n")
        self._take(("\n" * is_begun + line + "\n").encode())

    def output(self) -> Output:
        head, tail = bytes(self._head), bytes(self._tail[max(0, len(self._tail) - self._half) :])
        if self.written == len(head) + len(tail):
            return Output.of(head + tail)
        head, tail = without_cut_end(head), without_cut_start(tail)
        return Output.of(head + tail, cut_at=len(head), missing=self.written - len(head) - len(tail))

    def end(self, most_bytes: int) -> Output:
        """The last of it, for those who look on."""
        is_whole = self.written == len(self._head) + len(self._tail)
        end = bytes(self._head + self._tail if is_whole else self._tail)[-most_bytes:]
        end = without_cut_start(without_cut_end(end) if self.written > len(end) else end)
        return Output.of(end, missing=self.written - len(end))

    def close(self) -> None:
        os.close(self.descriptor)

    def _take(self, some: bytes) -> None:
        self.written += len(some)
        room = self._half - len(self._head)
        self._head += some[:room]
        self._tail += some[room:] if room else some
        if len(self._tail) > 2 * self._half + AT_ONCE:  # Seldom: what is left has to be moved.
            del self._tail[: -self._half]


def without_cut_end(some: bytes) -> bytes:
    """Without the beginning of a character of UTF-8 at its end. What is not UTF-8 stays as it is."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(some)
    except UnicodeDecodeError:
        return some
    begun = len(decoder.getstate()[0])
    return some[:-begun] if begun else some


def without_cut_start(some: bytes) -> bytes:
    """Without the end of a character of UTF-8 at its beginning. What is not UTF-8 stays as it is."""
    start = next((place for place, byte in enumerate(some[:4]) if byte & 0xC0 != 0x80), 0)
    try:
        some[start:].decode()
    except UnicodeDecodeError:
        return some
    return some[start:]


# Python has them ignored, or the runner heeds them in its own way: a shell should find them as elsewhere.
AS_USUAL = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)
LINGER_S = 0.5  # What a shell leaves behind may come to its end: bash does not wait for `>(gzip > file)`.
LOOK_S = 0.05  # At the memory.
LOOK_SOON_S = 0.01  # Whether what was left behind has ended.
TELL_S = 0.5
CAN_NOT_RUN = 126  # As shells say it.
MEGABYTE = 2**20


class Onlooker(Protocol):
    def hear(self, execution: Execution) -> None:
        """Something has come in at the descriptor that was named. It may kill the execution."""
        ...

    def tell(self, execution: Execution) -> None:
        """Some time has passed."""
        ...


class Execution:
    """One command. What it writes is in `out` and `err`."""

    def __init__(self, command: Command, setup: Setup, limit_s: float, clock: Clock) -> None:
        self._command, self._setup, self._limit_s, self._clock = command, setup, limit_s, clock
        self._verdict = ""  # Why it did not run to its end.
        self._code = 0
        self._ended_at: float | None = None
        self.left = 0  # So many processes were still there at its end, and were killed.

    def run(self, ear: int, onlooker: Onlooker) -> Run:
        """Waits until nothing of it is left. Meanwhile it listens at the descriptor `ear`."""
        self.started, self._started_at = self._clock.now_s(), time.monotonic()
        self.out, theirs_out = self._pipe()
        self.err, theirs_err = self._pipe()
        try:
            self._start(theirs_out, theirs_err)
            if self._ended_at is None:
                self._attend(ear, onlooker)
            return self._report()
        finally:
            self.out.close()
            self.err.close()

    def kill(self, verdict: str) -> None:
        """With all that it has started."""
        self._verdict, self._code = verdict, 128 + signal.SIGKILL
        self._ended_at = time.monotonic()
        descendants.kill_all()

    def _pipe(self) -> tuple[Capture, int]:
        ours, theirs = os.pipe()
        return Capture(ours, self._setup.output_bytes), theirs

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
                setsigdef=AS_USUAL,
            )
        except (OSError, ValueError) as problem:  # A NUL in the line is a ValueError.
            self._verdict, self._code = f"could not be started: {problem}", CAN_NOT_RUN
            self._ended_at = time.monotonic()
        finally:
            os.close(out)
            os.close(err)

    # ---- While it runs

    def _attend(self, ear: int, onlooker: Onlooker) -> None:
        end = os.pidfd_open(self._pid)
        poller = select.poll()
        for descriptor in (self.out.descriptor, self.err.descriptor, end, ear):
            poller.register(descriptor, select.POLLIN)
        self._looks_at = self._started_at + LOOK_S
        self._tells_at = self._started_at + TELL_S
        try:
            while not self._is_over():
                heard = {descriptor for descriptor, _ in poller.poll(self._patience_ms())}
                for capture in (self.out, self.err):
                    if capture.descriptor in heard and not capture.read():
                        poller.unregister(capture.descriptor)
                if ear in heard:
                    onlooker.hear(self)
                if end in heard and self._ended_at is None:
                    poller.unregister(end)
                    self._end()
                self._mind(onlooker)
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
            return LOOK_SOON_S * 1_000
        next_s = min(self._tells_at, self._started_at + self._limit_s)
        if self._setup.memory_bytes is not None:
            next_s = min(next_s, self._looks_at)
        return max(0.0, next_s - time.monotonic()) * 1_000 + 1

    def _end(self) -> None:
        """The shell has ended."""
        _, status = os.waitpid(self._pid, 0)
        self._ended_at = time.monotonic()
        code = os.waitstatus_to_exitcode(status)
        if code:
            self._verdict = f"ended with {code}" if code > 0 else f"killed by signal {-code}"
        self._code = code if code >= 0 else 128 - code

    def _mind(self, onlooker: Onlooker) -> None:
        """What is due by now."""
        now = time.monotonic()
        if self._ended_at is not None:
            return
        if now > self._started_at + self._limit_s:
            self.kill(f"took longer than {self._limit_s:g} s and was killed")
        elif self._setup.memory_bytes is not None and now > self._looks_at:
            self._looks_at = now + LOOK_S
            self._mind_memory(self._setup.memory_bytes)
        if now > self._tells_at:
            self._tells_at = now + TELL_S
            descendants.bury_all_but(self._pid)
            onlooker.tell(self)

    def _mind_memory(self, most_bytes: int) -> None:
        mine = list(descendants.descendants(os.getpid()))
        # First what is cheap to know: it is never less.
        if descendants.resident_bytes(mine) > most_bytes and descendants.memory_bytes(mine) > most_bytes:
            self.kill(f"used more than {most_bytes / MEGABYTE:g} MiB and was killed")

    # ---- At its end

    def _report(self) -> Run:
        ended_at = self._ended_at or time.monotonic()
        for capture in (self.out, self.err):
            capture.read()  # Nobody writes any more, and no pipe holds more than that.
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
