"""That the store can't be asked is said once, and once that it can be again."""

from __future__ import annotations

import logging
import threading

logger = logging.getLogger(__name__)


class Outage:
    """Threads may share one."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._is_on = False

    def begin(self, problem: object) -> None:
        with self._turn:
            if not self._is_on:
                logger.warning("the store can't be asked, and is tried again until it can: %s", problem)
            self._is_on = True

    def end(self) -> None:
        with self._turn:
            if self._is_on:
                logger.warning("the store can be asked again")
            self._is_on = False
