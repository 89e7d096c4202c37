"""What a job writes: the end of it is kept."""

from __future__ import annotations

import os

from ..job_record import LONGEST_LOG

BYTES_KEPT = 4 * LONGEST_LOG  # A character is at most that long in UTF-8.
AT_ONCE = 2**16
ROUNDS = 32  # Somebody who never ends writing does not keep us from all else.


class Output:
    """The reading end of a pipe into which a process writes its outputs."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.has_news = False
        self._end = b""

    def read(self) -> bool:
        """Take in what is there. False: nobody holds the other end any more."""
        for _ in range(ROUNDS):
            try:
                some = os.read(self.descriptor, AT_ONCE)
            except BlockingIOError:
                return True
            if not some:
                return False
            self._end = (self._end + some)[-BYTES_KEPT:]
            self.has_news = True
        return True

    def text(self) -> str:
        """What is not UTF-8, and a character that was cut in two, show as the sign for that."""
        self.has_news = False
        return self._end.decode(errors="replace")[-LONGEST_LOG:]

    def forget(self) -> None:
        self._end = b""
        self.has_news = False

    def close(self) -> None:
        os.close(self.descriptor)
