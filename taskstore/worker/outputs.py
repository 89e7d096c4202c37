"""The outputs of processes: what is kept of them, the progress that they tell, and their copy on standard error."""

from __future__ import annotations

import codecs
import os
import re
import select
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from ..types.command_record import Output
from ..types.progress import TEXT_LENGTH, problems_of

STANDARD_ERROR = 2
AT_ONCE = 2**16  # Bytes of a read from a pipe.
READS = 32  # A process that writes without end must not block everything else.


# Where outputs go beside the store: nowhere, or to standard error, with or without a prefix for each line.
OutputTo = Literal["store", "copy", "raw"]


def copied_after(output: OutputTo, prefix: str) -> bytes | None:
    """Return what begins the lines of a copy. None: there is none."""
    return None if output == "store" else prefix.encode(errors="backslashreplace") if output == "copy" else b""


class Capture:
    """The output of a process. Keeps the first `head` bytes and the last `tail` ones.

    `progress` and `copied` are shown all that is read. `has_news`: whether there is more than at the last call of
    `end`.
    """

    def __init__(self, descriptor: int, head: int, tail: int, progress: ProgressLines | None = None) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._most_head, self._most_tail, self._progress = head, tail, progress
        self.copied: CopiedLines | None = None  # Also of what is written after the end of a work, until the next one.
        self.forget()

    def forget(self) -> None:
        """Drop what was read, because other work begins."""
        self.written = 0  # All bytes so far, kept or not.
        self.has_news = False
        self._head, self._tail = bytearray(), bytearray()

    def read(self) -> bool:
        """Read what is available. Returns False once every writer has closed the pipe."""
        for _ in range(READS):
            try:
                some = os.read(self.descriptor, AT_ONCE)
            except BlockingIOError:
                return True
            if not some:
                return False
            self._take(some)
        return True

    def end_line(self) -> None:
        """Copy the last line, which may have no end."""
        if self.copied:
            self.copied.end()

    def output(self) -> Output:
        head, tail = bytes(self._head), bytes(self._tail[max(0, len(self._tail) - self._most_tail) :])
        if self.written == len(head) + len(tail):
            return Output.of(head + tail)
        head, tail = without_cut_end(head), without_cut_start(tail)
        return Output.of(head + tail, cut_at=len(head), missing=self.written - len(head) - len(tail))

    def end(self, most_bytes: int) -> Output:
        """Return the last bytes, for the live output."""
        self.has_news = False
        is_whole = self.written == len(self._head) + len(self._tail)
        end = bytes(self._head + self._tail if is_whole else self._tail)[-most_bytes:]
        end = without_cut_start(without_cut_end(end) if self.written > len(end) else end)
        return Output.of(end, missing=self.written - len(end))

    def _take(self, some: bytes) -> None:
        if self._progress:
            self._progress.take(some)
        if self.copied:
            self.copied.take(some)
        self.has_news = True
        self.written += len(some)
        room = self._most_head - len(self._head)
        self._head += some[:room]
        self._tail += some[room:] if room else some
        if len(self._tail) > 2 * self._most_tail + AT_ONCE:  # Rarely, because it moves the rest in memory.
            del self._tail[: -self._most_tail]


MOST_COPIED = 4_096  # Bytes of a line with its prefix. So much is written to a pipe at once, or not at all.
MOST_UNWRITTEN = 4 * 2**20
UNREAD_MS = 1_000  # A standard error of which nothing is read for so long is given up at the end.


class StandardError:
    """Writes whole lines to standard error as soon as it is read, without waiting. If too many wait, drops them."""

    def __init__(self, descriptor: int = STANDARD_ERROR) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._size = self._dropped = 0
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)

    def add(self, lines: Sequence[bytes]) -> None:
        size = sum(map(len, lines))
        if self._size + size > MOST_UNWRITTEN:
            self._dropped += len(lines)
        else:
            self._lines += lines
            self._size += size
        self.flush()

    @property
    def is_behind(self) -> bool:
        return bool(self._size)

    def flush(self) -> None:
        """Write what there is room for."""
        while self._lines and self._poller.poll(0):
            some = self._lines.popleft()
            while self._lines and len(some) + len(self._lines[0]) <= MOST_COPIED:
                some += self._lines.popleft()
            if len(some) > MOST_COPIED:
                self._lines.appendleft(some[MOST_COPIED:])
                some = some[:MOST_COPIED]
            self._size -= len(some)
            with suppress(OSError):  # Nobody reads it any more.
                os.write(self._descriptor, some)
            if self._dropped and not self._lines:
                self._say_dropped()

    def end(self, most_s: float) -> None:
        """Write what is left, as long as somebody reads it, but no longer than so many seconds."""
        until = time.monotonic() + most_s
        while self._lines and time.monotonic() < until and self._poller.poll(UNREAD_MS):
            self.flush()
        if self._lines:
            self._dropped += len(self._lines)
            self._lines.clear()
            self._size = 0
            self._say_dropped()

    def _say_dropped(self) -> None:
        left_out, self._dropped = self._dropped, 0
        self.add([b"taskstore: %d lines are left out: standard error was read too slowly\n" % left_out])


class CopiedLines:
    """Copies the lines of an output to standard error, each after a prefix, and then no longer than can't be torn."""

    def __init__(self, prefix: bytes, to: StandardError) -> None:
        self._prefix, self._to = prefix, to
        self._most = MOST_COPIED - len(prefix) - 100
        self._rest = b""  # The line that has not ended.
        self._left_out = 0  # Bytes of that line before it.

    def take(self, some: bytes) -> None:
        *lines, self._rest = (self._rest + some).split(b"\n")
        copies = [self._prefix + self._cut(line) + b"\n" for line in lines]
        if len(self._rest) > AT_ONCE and self._prefix:
            self._left_out += len(self._rest) - MOST_COPIED
            self._rest = self._rest[:MOST_COPIED]
        elif len(self._rest) > AT_ONCE:
            copies.append(self._rest)  # Unchanged, so without an end.
            self._left_out, self._rest = self._left_out + len(self._rest), b""
        self._to.add(copies)

    def end(self) -> None:
        if self._rest or self._left_out:
            self.take(b"\n")

    def _cut(self, line: bytes) -> bytes:
        size, self._left_out = len(line) + self._left_out, 0
        if size <= self._most or not self._prefix:
            return line
        return without_cut_end(line[: self._most]) + b" ... (%d bytes in all)" % size


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
