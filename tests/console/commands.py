"""Commands and lists with known ids, as workers leave them."""

from typing import Any

from msgspec.structs import replace

from tasks_app.models import Task
from taskstore.types.command_record import (
    RESULTS,
    Command,
    CommandList,
    CommandStatus,
    Run,
    group_of,
    new_command_task,
    new_list_task,
)
from taskstore.types.tasks import NOBODY

BOB = 2


def running_list(*ids: str, project: str = "default", owner: int = BOB, cmd: str = "true", done: int = 0) -> Task:
    """A list with these commands that a worker holds. The first of them have left it."""
    commands = tuple(command_of(command_id, cmd=cmd) for command_id in ids[done:])
    made = CommandList(name="1448978609", commands=commands, done=done)
    Task.objects.commit(owner=NOBODY, adds=[new_list_task(project, made)])
    [task] = Task.objects.claim(group_of(project, CommandStatus.OPEN), owner=owner, duration_ms=60_000)
    return task


def completed(command_id: str, project: str = "default", **run: Any) -> Task:
    """A command that a worker has run."""
    return ended(command_id, CommandStatus.COMPLETED, project=project, **run)


def ended(command_id: str, status: CommandStatus, *, project: str = "default", cmd: str = "true", **run: Any) -> Task:
    """A command that lies there, with a run unless it never had one."""
    was_run = status in RESULTS
    told = Run(**{"worker": "w_2", "started": 1, "ended": 2, "exit_code": 0, **run}) if was_run else None
    command = replace(command_of(command_id, cmd=cmd), run=told)
    [task] = Task.objects.commit(owner=NOBODY, adds=[new_command_task(project, command, status)])
    return task


def command_of(command_id: str, *, cmd: str = "true") -> Command:
    now = Task.objects.now_ms() // 1_000
    fails = int(command_id.rpartition("_")[2])
    return Command(
        id=command_id, cmd=cmd, created=now, until=now + 3_600, expected_duration=60, max_fails=3, fails=fails
    )
