"""Find, measure and end processes with all their descendants. On systems other than Linux some calls have no effect."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

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
