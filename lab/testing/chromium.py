"""Find the browser of tests and benchmarks: TASKSTORE_CHROMIUM, the system's, or Debian's package."""

import os

from . import CannotTry, debian

NAMES = ("chromium", "chromium-browser", "google-chrome")
# libatomic1 is for playwright's own node.
PACKAGES = ("chromium", "fonts-dejavu-core", "libatomic1")
# Run without network calls of its own, a desktop, a GPU or special permissions.
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--lang=en-US",
]


def chromium() -> str:
    """Return the path of a Chromium; installs it if needed and permitted.

    Raises CannotTry with the remedy.
    """
    named = os.environ.get("TASKSTORE_CHROMIUM")
    if named and not os.access(named, os.X_OK):
        raise CannotTry(f'TASKSTORE_CHROMIUM is "{named}", which is no program')
    return named or debian.program(NAMES, PACKAGES, "name one in TASKSTORE_CHROMIUM")
