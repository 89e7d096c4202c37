"""What the system knows of processes (proc(5)). A process is meant with all that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LOOK_EVERY_S = 0.02
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def ending_with_us(command: Sequence[str | Path]) -> list[str | Path]:
    """Return the command so that its process is killed when the thread that starts it ends, however it ends.

    Without setpriv(1), which Debian always has, it is the command as it was.
    """
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


def cpu_s(pid: int) -> float:
    """The seconds of CPU that it has used so far, also by children that have ended."""
    return sum(cpu_by_process(pid).values())


def cpu_by_process(pid: int) -> dict[int, float]:
    """The same for each member of its family."""
    return {member: sum(_times(member)) * TICK_S for member in family(pid)}


def memory_mb(pid: int) -> float:
    """The memory that it uses; what processes share is divided among them."""
    return sum(_shared_out_kb(member) for member in family(pid)) / 1024


def family(pid: int) -> set[int]:
    """The process and its descendants."""
    # One look at all processes: a database has more children than one wants to look for one by one.
    parents = {int(folder.name): _parent(int(folder.name)) for folder in PROC.iterdir() if folder.name.isdigit()}
    found, members = {pid}, {pid}
    while found:
        found = {child for child, parent in parents.items() if parent in found}
        members |= found
    return members


def signal_all(pid: int, number: int) -> None:
    """Send a signal to a process and its descendants, as service managers do."""
    for member in family(pid):
        with suppress(ProcessLookupError):
            os.kill(member, number)


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all its descendants, and wait until they are gone."""
    # Stop it first, because it would replace a killed child.
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)
    children = family(process.pid) - {process.pid}
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    # Descendants hold their ports and locks until their last thread is gone.
    while any(map(is_alive, children)):
        time.sleep(LOOK_EVERY_S)


def is_alive(pid: int) -> bool:
    """Whether any thread of the process runs; the first one may end before the others."""
    with suppress(FileNotFoundError, ProcessLookupError):
        threads = [stat.read_text() for stat in (PROC / str(pid) / "task").glob("*/stat")]
        return any(text.rpartition(")")[2].split()[0] != "Z" for text in threads)
    return False


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _times(pid: int) -> list[int]:
    """In user and system mode, of itself and of the children that it has waited for."""
    return [int(ticks) for ticks in _fields(pid)[11:15]]


def _fields(pid: int) -> list[str]:
    """Those after the name, which may hold anything; none when the process has gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _shared_out_kb(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
