"""What a command writes: the beginning and the end of it are kept, and what is missing between them is counted."""

from __future__ import annotations

import codecs
import os

from ..command_record import Output

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
