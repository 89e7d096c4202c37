"""Where the site lies: in the wheel, or made when somebody first asks a checkout for it."""

from __future__ import annotations

import logging
import shutil
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread

from django.conf import settings

from .building import HERE, CannotBuild, build, fingerprint

log = logging.getLogger(__name__)

INCLUDED = HERE / "site"  # In a wheel.


class CannotShow(Exception):
    """There is no site yet, or there will be none; the text says which, and what helps."""


class Site:
    """The site that this process serves. A start waits for nothing; the first visitor does, in a checkout."""

    def __init__(self, included: Path = INCLUDED) -> None:
        self._included = included
        self._lock = Lock()
        self._making: Thread | None = None
        self._problem = ""

    def folder(self) -> Path:
        """Where its pages are. Raises CannotShow while it is being made, and when it could not be."""
        if self._included.exists():
            return self._included
        if not settings.IS_CHECKOUT:
            raise CannotShow("The documentation was left out of this installation.")
        if self._cached.exists():
            return self._cached
        self._make()
        if self._problem:
            raise CannotShow("The documentation could not be made: the server's log says why.")
        raise CannotShow("The documentation is being made, once. That takes some seconds.")

    @cached_property
    def _cached(self) -> Path:
        return Path(settings.TASKSTORE_DATA, "docs", fingerprint(settings.BASE_DIR))

    def _make(self) -> None:
        # Once, whatever comes of it: everybody may ask, and it takes a processor for seconds.
        with self._lock:
            if self._making is None:
                self._making = Thread(target=self._build, name="documentation", daemon=True)
                self._making.start()

    def _build(self) -> None:
        try:
            build(settings.BASE_DIR, self._cached)
        except (CannotBuild, OSError) as problem:
            self._problem = str(problem)
            log.error("the documentation could not be made: %s", problem)
        else:
            self._remove_former()

    def _remove_former(self) -> None:
        for former in self._cached.parent.glob("[!.]*"):
            if former != self._cached:
                shutil.rmtree(former, ignore_errors=True)


SITE = Site()
