"""Where the data of the tests lies."""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it.
ENOUGH_BYTES = 4 * 2**30  # In a container it may be as small as 64 MB.


def data_place() -> Path | None:
    """A file system in memory, where there is one with room; None: wherever temporary files lie.

    What a disk keeps when the power fails no test sees, and waiting for it was half of their time on SQLite.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        return MEMORY
    return None
