"""Commands for tests, and workers that do as they are told."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tasks_app.commands import submit
from tasks_app.models import Task
from taskstore.types.command_record import Command, CommandList, CommandStatus, group_of
from taskstore.types.commands import Submission
from taskstore.types.tasks import Change

BOB = 2


def submitted(number: int, project: str = "default", **asked: Any) -> list[Command]:
    return submit(project, [Submission(cmd="true", **asked) for _ in range(number)])


def commands_in(project: str, status: CommandStatus) -> list[Command]:
    tasks = Task.objects.group(group_of(project, status), owned=True)
    return [Command.decode(bytes(task.data)) for task in tasks]


def lists_in(project: str, status: CommandStatus = CommandStatus.OPEN) -> list[CommandList]:
    tasks = Task.objects.group(group_of(project, status), owned=True)
    return [CommandList.decode(bytes(task.data)) for task in tasks]


def close(project: str, run: Callable[[Command], Command], owner: int = BOB) -> CommandList:
    """Claim a list, run each of its commands, and close it."""
    [task] = Task.objects.claim(group_of(project, CommandStatus.OPEN), owner=owner, duration_ms=60_000)
    made = CommandList.decode(bytes(task.data))
    now = Task.objects.now_ms() // 1_000
    closed = replace(made, commands=tuple(map(run, made.commands)), worker=f"w_{owner}", started=now, finished=now)
    change = Change(id=task.id, group=group_of(project, CommandStatus.CLOSED), data=closed.encode())
    Task.objects.commit(owner=owner, updates=[change])
    return closed
