"""Functions that only a process of their own survives."""

import os
from typing import Any

from taskstore import NewTask, Task


def die(task: Task) -> None:
    os._exit(3)


def answer_nonsense(task: Task) -> NewTask:
    labels: Any = (label for label in "ab")
    return NewTask(group="sent", labels=labels)
