"""The browser of tests and benchmark: the one in the environment, else the system's, else Debian's package."""

import os
import shutil
import subprocess
import sys

from taskstore_project import bootstrap

from . import CannotTest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# libatomic1 is for playwright's own node.
PACKAGES = ("chromium", "fonts-dejavu-core", "libatomic1")
REMEDY = f"install one (`apt-get install {' '.join(PACKAGES)}`) or name one in TASKSTORE_CHROMIUM"
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
    return named or on_path() or install()


def on_path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def install() -> str:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotTest(f"There is no Chromium for the browser tests; {REMEDY}")
    # The tests of the two databases run side by side; apt-get does not.
    with bootstrap.one_at_a_time():
        if not on_path():
            print("taskstore: installing Chromium with apt-get, about 60 s once ...", file=sys.__stderr__, flush=True)
            apt_get("update")
            apt_get("install", "--yes", "--no-install-recommends", *PACKAGES)
    found = on_path()
    if not found:
        raise CannotTest(f"apt-get installed no Chromium; {REMEDY}")
    return found


def apt_get(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotTest(f"apt-get {arguments[0]} failed: {done.stdout.strip()[-2000:]}\nElse {REMEDY}")
