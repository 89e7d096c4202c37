"""All that a process has started, as Linux knows it: also what has moved to other groups and sessions."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 0.005
QUIET_LOOKS = 3
PATIENCE_S = 10.0  # With what does not die, such as waits for a disk that has gone.


def adopt_orphans() -> None:
    """From now on what loses its parent below this process becomes its child, and is never out of sight."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> Iterator[int]:
    """Parents before their children. What has ended meanwhile is left out."""
    waiting = [pid]
    while waiting:
        found = list(_children(waiting.pop()))
        yield from found
        waiting += found


def are_there() -> bool:
    """Whether this process has any child that lives. The others are buried."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def bury_all_but(pid: int) -> None:
    """Forget the orphans that have ended. The end of this child is for somebody else to hear of."""
    with suppress(ChildProcessError):
        while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and seen.si_pid != pid:
            os.waitpid(seen.si_pid, 0)


def kill_all() -> int:
    """Kill all that this process has started. How many there were; waits until none is left, for a while."""
    killed: set[int] = set()
    until = time.monotonic() + PATIENCE_S
    while are_there() and time.monotonic() < until:
        # Again and again: they may start others meanwhile.
        for pid in descendants(os.getpid()):
            kill(pid)
            killed.add(pid)
        time.sleep(LOOK_S)
    return len(killed)


def kill_bearers(mark: str) -> None:
    """Kill all that was started with this in its environment; waits until none is left, for a while."""
    until = time.monotonic() + PATIENCE_S
    quiet_looks = 0
    # Not only once: who starts a program, or has just been started, may be missed by a look.
    while quiet_looks < QUIET_LOOKS and time.monotonic() < until:
        found = list(bearers(mark))
        for pid in found:
            kill(pid)
        quiet_looks = 0 if found else quiet_looks + 1
        time.sleep(LOOK_S)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def memory_bytes(pids: Iterable[int]) -> int:
    """Of all of them. Each has its share of what several have in common."""
    return sum(map(_share_bytes, pids))


def resident_bytes(pids: Iterable[int]) -> int:
    """At least what they use together, and quicker to be had: what is common counts for each."""
    return sum(int(text.split()[1]) for pid in pids if (text := _read(f"/proc/{pid}/statm"))) * resource.getpagesize()


def bearers(mark: str) -> Iterator[int]:
    """The processes that were started with this in their environment."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and mark in _read(f"/proc/{entry.name}/environ"):
            yield int(entry.name)


def _children(pid: int) -> Iterator[int]:
    # Each thread has its own.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _share_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident_bytes([pid])  # Of another user, by sudo say: only that is told.


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
