"""Operating system calls about processes. On systems other than Linux some have no effect."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
SPARE_BYTES = 8 * 2**20  # Allowed beyond the present use, so that the process can report that it hit the limit.
OOM_SCORE = 500  # Of 1000: when memory runs out, Linux kills a job before its worker.

AT_ONCE = 2**16  # Bytes of a read from a pipe.
READS = 32  # A process that writes without end must not block everything else.

IS_LINUX = sys.platform == "linux"
_prctl = ctypes.CDLL(None).prctl if IS_LINUX else None  # Loaded before any fork.


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # The parent died before the call.


def prefer_for_oom_kill() -> None:
    """Have Linux kill this process before others when memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))


class Pipe(ABC):
    """The reading end of a pipe to which a process writes its output."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor

    def read(self) -> bool:
        """Read what is available. Returns False once every writer has closed the pipe."""
        for _ in range(READS):
            try:
                some = os.read(self.descriptor, AT_ONCE)
            except BlockingIOError:
                return True
            if not some:
                return False
            self.take(some)
        return True

    @abstractmethod
    def take(self, some: bytes) -> None:
        """Keep what was read."""


@contextmanager
def memory_limit(limit: int | None) -> Iterator[None]:
    """Make allocations fail beyond `limit` bytes for the whole process. None: no limit."""
    kind = resource.RLIMIT_DATA if IS_LINUX else resource.RLIMIT_AS
    soft, hard = resource.getrlimit(kind)
    if limit is None:
        yield
        return
    used = [line.split()[1] for line in _text("/proc/self/status").splitlines() if line.startswith("VmData:")]
    wanted = max(limit, sum(map(int, used)) * 1024 + SPARE_BYTES)
    resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        # Reporting that the limit was reached needs memory too.
        resource.setrlimit(kind, (soft, hard))


def end_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def machine() -> str:
    """Return an id shared by exactly the processes that can find each other by process id."""
    boot = _text("/proc/sys/kernel/random/boot_id") or socket.gethostname()
    with suppress(OSError):
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return boot


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


def _stat(pid: int) -> list[str]:
    # The name, in brackets, may contain anything; the state follows it.
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
