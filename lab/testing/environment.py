"""The environment of gates, tests and fault tests: default settings, and a directory for their data."""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it.
ENOUGH_BYTES = 4 * 2**30  # In a container it may be as small as 64 MB.
# The user's settings that are meant for the tests; all others must not influence them.
KEPT = ("TASKSTORE_TEST_POSTGRES_URL", "TASKSTORE_CHROMIUM", "TASKSTORE_ENVIRONMENT")


def data_place() -> Path | None:
    """Return a file system in memory with enough room; None: use the folder of temporary files.

    No test depends on durability, and waiting for the disk took half of their time on SQLite.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        return MEMORY
    return None


def clean_environment(data: Path) -> dict[str, str]:
    """Return the environment with default settings and this data directory."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("TASKSTORE_")}
    for name in ("DATABASE_URL", "DATABASE_PASSWORD_FILE"):
        kept.pop(name, None)
    # Cache bytecode, because the tests start hundreds of processes that import the same modules.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "TASKSTORE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "taskstore_project.settings"}
