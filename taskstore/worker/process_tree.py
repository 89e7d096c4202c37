"""Find, measure and end processes with all their descendants. On systems other than Linux some calls have no effect."""

from __future__ import annotations

import codecs
import ctypes
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..types.command_record import Output
from ..types.progress import TEXT_LENGTH, problems_of

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OOM_SCORE = 1000  # When memory runs out, Linux kills the process with the highest score first.
PAUSE_S = 0.005
PATIENCE_S = 10.0  # For processes that can't be killed, such as those that wait for a failed disk.
OTHERS_S = 0.2  # For those of other users, which may be about to end by themselves.

IS_LINUX = sys.platform == "linux"
_prctl = ctypes.CDLL(None).prctl if IS_LINUX else None  # Loaded before any fork.


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies, which must have a single thread."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # The parent died before the call.


def adopt_orphans() -> None:
    """Make orphaned descendants of this process its children, so that it can always find them."""
    if _prctl is not None:
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def prefer_for_oom_kill(pid: int | str = "self") -> None:
    """Have Linux kill this process before others when memory runs out."""
    with suppress(OSError):
        file = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)  # Not Path, which takes three times as long.
        try:
            os.write(file, b"%d" % OOM_SCORE)
        finally:
            os.close(file)


def reap(ended: Callable[[int, int], object] = lambda pid, status: None) -> bool:
    """Wait for the children that have ended, and call `ended` with the id and the status of each.

    Returns whether there are others.
    """
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended(*found)
        return True
    return False


def descendants(pid: int) -> Iterator[int]:
    """Yield the descendants of a process, parents before their children."""
    waiting = [pid]
    while waiting:
        found = list(children(waiting.pop()))
        yield from found
        waiting += found


def children(pid: int) -> Iterator[int]:
    """Yield the children of a process."""
    # Linux lists children per thread.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, _text(f"/proc/{pid}/task/{thread}/children").split())


class Killed(NamedTuple):
    """How many processes were killed, and those that could not be."""

    number: int
    others: tuple[int, ...]


NONE_KILLED = Killed(0, ())


def kill_all(find: Callable[[], Iterable[int]] | None = None, are_there: Callable[[], bool] = reap) -> Killed:
    """Kill processes and wait for their end. `find` returns those that live, by default all descendants of this one.

    `are_there` reaps them, and says whether there may be any.
    """
    killed: set[int] = set()
    others: set[int] = set()
    began = time.monotonic()
    while are_there() and (left := list(find() if find else descendants(os.getpid()))):
        for pid in left:  # Repeatedly, because they may start others.
            (killed if send(pid, signal.SIGKILL) else others).add(pid)
        patience_s = OTHERS_S if others.issuperset(left) else PATIENCE_S
        if time.monotonic() > began + patience_s:
            return Killed(len(killed - set(left)), tuple(left))
        time.sleep(PAUSE_S)
    return Killed(len(killed), ())


def send(pid: int, number: int) -> bool:
    """Send a signal to a process. Returns False if it belongs to another user."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def is_above(most_bytes: int, pids: Iterable[int]) -> bool:
    """Whether these processes use more memory in all, counting shared pages once."""
    pids = list(pids)
    # The resident size is quick to read and never smaller than the exact one.
    return sum(map(_resident_bytes, pids)) > most_bytes and sum(map(_share_bytes, pids)) > most_bytes


def machine() -> str:
    """Return an id shared by exactly the processes that can find each other by process id."""
    boot = _text("/proc/sys/kernel/random/boot_id") or socket.gethostname()
    with suppress(OSError):
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return boot


def whereabouts(pid: int) -> dict[str, Any]:
    """Return the part of a heartbeat by which other workers can tell whether this process is dead."""
    return {"machine": machine(), "born": born(pid)}


def born(pid: int) -> str | None:
    """Return when the process started, because ids are reused. None: it has ended or is not visible."""
    if not IS_LINUX:
        return "" if _is_there(pid) else None
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else None


def has_ended(pid: int, was_born: str | None) -> bool:
    """Whether the process with this id and start time has ended."""
    if not IS_LINUX or not _stat(pid):
        # Processes of other users may be alive but hidden.
        return not _is_there(pid)
    return born(pid) != was_born


def _resident_bytes(pid: int) -> int:
    fields = _text(f"/proc/{pid}/statm").split()
    return int(fields[1]) * resource.getpagesize() if fields else 0


def _share_bytes(pid: int) -> int:
    for line in _text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident_bytes(pid)  # A process of another user, such as one started by sudo, shows only this.


def _stat(pid: int) -> list[str]:
    # The name, in brackets, may contain anything; the state follows it.
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _is_there(pid: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return True
    return os.path.exists(f"/proc/{pid}")


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace").strip()
    return ""


# ---- The outputs of a process: what is kept of them, and the progress that they report


AT_ONCE = 2**16  # Bytes of a read from a pipe.
READS = 32  # A process that writes without end must not block everything else.


class Capture:
    """The output of a process. Keeps the first `head` bytes and the last `tail` ones.

    `progress` is shown all that is read. `has_news`: whether there is more than at the last call of `end`.
    """

    def __init__(self, descriptor: int, head: int, tail: int, progress: ProgressLines | None = None) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._most_head, self._most_tail, self._progress = head, tail, progress
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
        self.has_news = True
        self.written += len(some)
        room = self._most_head - len(self._head)
        self._head += some[:room]
        self._tail += some[room:] if room else some
        if len(self._tail) > 2 * self._most_tail + AT_ONCE:  # Rarely, because it moves the rest in memory.
            del self._tail[: -self._most_tail]


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
