"""Find, measure and kill all descendants of a process on Linux, also those in other groups and sessions."""

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
PAUSE_S = 0.005
QUIET_SCANS = 3
PATIENCE_S = 10.0  # For processes that can't be killed, such as those that wait for a failed disk.


def adopt_orphans() -> None:
    """Make orphaned descendants of this process its children, so that it can always find them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> Iterator[int]:
    """Yield the descendants of a process, parents before their children."""
    waiting = [pid]
    while waiting:
        found = list(_children(waiting.pop()))
        yield from found
        waiting += found


def are_there() -> bool:
    """Whether this process has a live child. Reaps the others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def reap_all_but(pid: int) -> None:
    """Reap orphans that have ended. The caller waits for the child `pid` itself."""
    with suppress(ChildProcessError):
        while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and seen.si_pid != pid:
            os.waitpid(seen.si_pid, 0)


def kill_all() -> int:
    """Kill all descendants of this process and wait up to PATIENCE_S for their end. Returns how many there were."""
    killed: set[int] = set()
    until = time.monotonic() + PATIENCE_S
    while are_there() and time.monotonic() < until:
        # Repeatedly, because they may start others.
        for pid in descendants(os.getpid()):
            kill(pid)
            killed.add(pid)
        time.sleep(PAUSE_S)
    return len(killed)


def kill_marked(mark: str) -> None:
    """Kill all processes with this line in their environment and wait up to PATIENCE_S for their end."""
    until = time.monotonic() + PATIENCE_S
    quiet_scans = 0
    # Scan several times, because a process that is just starting may be missed.
    while quiet_scans < QUIET_SCANS and time.monotonic() < until:
        found = list(marked(mark))
        for pid in found:
            kill(pid)
        quiet_scans = 0 if found else quiet_scans + 1
        time.sleep(PAUSE_S)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the memory of all these processes, counting shared pages once."""
    return sum(map(_share_bytes, pids))


def resident_bytes(pids: Iterable[int]) -> int:
    """Return an upper bound of their memory that is quick to read: shared pages count for each process."""
    return sum(int(text.split()[1]) for pid in pids if (text := _read(f"/proc/{pid}/statm"))) * resource.getpagesize()


def marked(mark: str) -> Iterator[int]:
    """Yield the processes with this line in their environment."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and mark in _read(f"/proc/{entry.name}/environ"):
            yield int(entry.name)


def _children(pid: int) -> Iterator[int]:
    # Linux lists children per thread.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _share_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident_bytes([pid])  # A process of another user, such as one started by sudo, shows only this.


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
