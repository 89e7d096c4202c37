"""The browser of tests and benchmark: the one in the environment, else the system's, else Debian's package."""

import os

from . import CannotTest, debian

NAMES = ("chromium", "chromium-browser", "google-chrome")
# libatomic1 is for playwright's own node.
PACKAGES = ("chromium", "fonts-dejavu-core", "libatomic1")
# What keeps Chromium from calling home, and from needing a desktop, a GPU or rights we may not have.
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
    """The path of a Chromium; installs it where there is none and we may.

    Raises CannotTest with the remedy.
    """
    named = os.environ.get("TASKSTORE_CHROMIUM")
    if named and not os.access(named, os.X_OK):
        raise CannotTest(f'TASKSTORE_CHROMIUM is "{named}", which is no program')
    return named or debian.program(NAMES, PACKAGES, "name one in TASKSTORE_CHROMIUM")
