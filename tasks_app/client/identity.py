"""Who this process is to the store: a number of its own, and another one in each child that it forks."""

from __future__ import annotations

import os
import secrets

# What every client can write exactly, JavaScript's too. 0 is the owner that nobody is.
LARGEST = 2**53 - 1


class _Identity:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.number = 1 + secrets.randbelow(LARGEST)


_identity = _Identity()
os.register_at_fork(after_in_child=_identity.renew)


def of_this_process() -> int:
    """The number of this process. Two processes that shared one could delete each other's tasks."""
    return _identity.number
