"""Start a worker again when the code of its project changes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from ..errors import TaskStoreError
from .process_tree import die_with

logger = logging.getLogger(__name__)

WATCHED_BY = "WORKER_WATCHED_BY"  # Tells a worker which process watches and has started it.
LOOK_MS = 500  # How often to look whether the worker has ended.


class NotReloaded(TaskStoreError):
    """The code can't be watched."""


def reload_on_change(folders: Iterable[str | Path] = ()) -> None:
    """Return in a child process, which runs this program again, and in a new one after each change of Python code.

    This process watches the current directory and `folders` until SIGTERM or SIGINT, and exits as the child does. A
    child that is to be replaced gets SIGTERM. If one ends by itself, as with code that can't be imported, a new one
    starts at the next change.

    Raises NotReloaded if watchfiles is not installed, or the system watches no more files.
    """
    if parent := os.environ.pop(WATCHED_BY, ""):
        die_with(int(parent))
        return
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise NotReloaded("--reload needs watchfiles: pip install 'taskstore[reload]'") from None
    here, stopping, is_code = Path.cwd(), threading.Event(), PythonFilter()
    others = {path for folder in folders if not (path := Path(folder).resolve()).is_relative_to(here)}
    child, is_told = start(), False
    ending = set[int]()  # The processes that were told to end.

    def on_signal(number: int, _frame: object) -> None:
        # At once: later a worker that also got it by itself would take this for a second one, which cuts it short.
        if stopping.is_set() or child.pid not in ending:
            ending.add(child.pid)
            child.send_signal(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        for changes in watch(
            here,
            *others,
            watch_filter=None,  # What a filter leaves out delays the next look, too.
            stop_event=stopping,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        ):
            if code := sorted(path for change, path in changes if is_code(change, path)):
                logger.info("%s has changed: the worker starts again", code[0])
                end(child, ending)
                if not stopping.is_set():
                    child, is_told = start(), False
            elif child.poll() is not None and not is_told:
                logger.warning("the worker has ended; it starts again when code changes")
                is_told = True
    except (OSError, RuntimeError) as problem:  # Those of watchfiles.
        raise NotReloaded(f"the code can't be watched: {problem}") from None
    finally:
        exit_code = end(child, ending)
    sys.exit(exit_code if exit_code >= 0 else 128 - exit_code)


def start() -> subprocess.Popen[bytes]:
    """Run this program again. The signals of a terminal reach this process only, so that the worker gets each once."""
    environment = {**os.environ, WATCHED_BY: str(os.getpid())}
    return subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=environment, process_group=0)


def end(child: subprocess.Popen[bytes], ending: set[int]) -> int:
    """Have it stop, unless it has or was told to, and return its exit code."""
    if child.poll() is None and child.pid not in ending:
        ending.add(child.pid)
        child.terminate()
    return child.wait()
