"""What the system knows and is told of processes. Beyond Linux some of it is not to be had, and left out."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
SPARE_BYTES = 8 * 2**20  # A limit below what the process already has would only keep it from saying so.
FIRST_TO_GO = 500  # Of 1000: the system that runs out of memory ends a job before the worker.

IS_LINUX = sys.platform == "linux"
_prctl = ctypes.CDLL(None).prctl if IS_LINUX else None  # Looked up before any fork.


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies, in whatever way."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # It was dead before we asked.


def be_first_to_go() -> None:
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_GO))


@contextmanager
def memory_limit(limit: int | None) -> Iterator[None]:
    """Make allocations fail beyond so many bytes, imports and all. None: no limit."""
    kind = resource.RLIMIT_DATA if IS_LINUX else resource.RLIMIT_AS
    soft, hard = resource.getrlimit(kind)
    if limit is None:
        yield
        return
    wanted = max(limit, _data_bytes() + SPARE_BYTES)
    resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        # What says that the limit was reached needs memory, too.
        resource.setrlimit(kind, (soft, hard))


def end_group(group: int, number: signal.Signals) -> None:
    """Signal to a process and to all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def machine() -> str:
    """What is the same for processes that can look each other up by their pid, and for no others."""
    boot = _text("/proc/sys/kernel/random/boot_id") or socket.gethostname()
    with suppress(OSError):
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return boot


def born(pid: int) -> str | None:
    """When the process started: a pid may be used again. None: it has ended, or can't be seen."""
    if not IS_LINUX:
        return "" if _is_there(pid) else None
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else None


def has_ended(pid: int, was_born: str | None) -> bool:
    """Whether the process that had this pid, and was born then, is no more."""
    if not IS_LINUX or not _stat(pid):
        # Those of other users may be hidden, and live.
        return not _is_there(pid)
    return born(pid) != was_born


def _stat(pid: int) -> list[str]:
    # The name, in brackets, may hold anything; the state comes next.
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def _data_bytes() -> int:
    for line in _text("/proc/self/status").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
