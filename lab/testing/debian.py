"""Find programs, or install their Debian packages if permitted."""

import os
import shutil
import subprocess
import sys

from taskstore_project import bootstrap

from . import CannotTry

NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)  # The first takes two thirds of the time.
# libatomic1 is for playwright's own node.
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core", "libatomic1")
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


def program(names: tuple[str, ...], packages: tuple[str, ...], or_else: str = "") -> str:
    """Return the path of the first of these programs that exists; installs the packages if there is none.

    Raises CannotTry with the remedy. `or_else`: what a user can do instead of installing them.
    """
    return _found(names) or _installed(names, packages, or_else)


def _found(names: tuple[str, ...]) -> str | None:
    path = f"{os.environ['PATH']}:/usr/sbin"
    return next(filter(None, (shutil.which(name, path=path) for name in names)), None)


def _installed(names: tuple[str, ...], packages: tuple[str, ...], or_else: str) -> str:
    remedy = f"install one (`apt-get install {' '.join(packages)}`){or_else and f' or {or_else}'}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotTry(f"There is no {names[0]}; {remedy}")
    # The tests of the two databases run side by side; apt-get does not.
    with bootstrap.one_at_a_time():
        if not _found(names):
            print(f"taskstore: installing {names[0]} with apt-get, once ...", file=sys.__stderr__, flush=True)
            _apt_get("update", remedy=remedy)
            _apt_get("install", "--yes", "--no-install-recommends", *packages, remedy=remedy)
    found = _found(names)
    if not found:
        raise CannotTry(f"apt-get installed no {names[0]}; {remedy}")
    return found


def _apt_get(*arguments: str, remedy: str) -> None:
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
        raise CannotTry(f"apt-get {arguments[0]} failed: {done.stdout.strip()[-2000:]}\nElse {remedy}")


def chromium() -> str:
    """Return the path of a Chromium; installs it if needed and permitted.

    Raises CannotTry with the remedy.
    """
    named = os.environ.get("TASKSTORE_CHROMIUM")
    if named and not os.access(named, os.X_OK):
        raise CannotTry(f'TASKSTORE_CHROMIUM is "{named}", which is no program')
    return named or program(NAMES, PACKAGES, "name one in TASKSTORE_CHROMIUM")
