"""Commands and lists at some stage of their way, put there by hand."""

from typing import Any

from msgspec.structs import replace

from tasks_app.commands import new_commands
from tasks_app.models import Client, Task
from tasks_app.reading import clients
from taskstore.types.command_record import (
    Command,
    CommandList,
    CommandStatus,
    LiveOutput,
    Output,
    Run,
    group_of,
    list_labels,
    live_labels,
    new_command_task,
    new_list_task,
    output_group,
)
from taskstore.types.commands import Submission
from taskstore.types.tasks import NOBODY, Change, NewTask

BOB = 2


def run(*, failed=False, duration_ms=1_000, out=b"", err=b"") -> Run:
    ran = Run(worker="bob", started=1, ended=2, duration_ms=duration_ms, exit_code=int(failed))
    return replace(ran, out=Output.of(out), err=Output.of(err))


def is_in(status: CommandStatus, project="default", cmd="true", **known: Any) -> tuple[Task, Command]:
    """A command by itself, and its task."""
    [made] = new_commands(project, [Submission(cmd=cmd)])
    command = replace(made, **known)
    [task] = Task.objects.commit(owner=NOBODY, adds=[new_command_task(project, command, status)])
    return task, command


def completed(project="default", **ran: Any) -> tuple[Task, Command]:
    return is_in(CommandStatus.COMPLETED, project, run=run(**ran))


def open_list(project="default", number=2) -> tuple[Task, CommandList]:
    commands = new_commands(project, [Submission(cmd=f"echo {place}") for place in range(number)])
    made = CommandList(name=str(commands[0].created + Task.objects.newest_id()), commands=tuple(commands))
    [task] = Task.objects.commit(owner=NOBODY, adds=[new_list_task(project, made)])
    return task, made


def running_list(project="default", *, owner=BOB) -> tuple[Task, CommandList]:
    _, made = open_list(project)
    return claimed(project, owner=owner), made


def claimed(project="default", *, owner=BOB) -> Task:
    """A list that a worker runs."""
    [task] = Task.objects.claim(group_of(project, CommandStatus.OPEN), owner=owner, duration_ms=60_000)
    return task


def heard(owner=BOB, project="default") -> None:
    """A worker of the project says that it lives."""
    groups = [group_of(project, CommandStatus.OPEN)]
    clients.hear(Client(id=owner, name="bob", host="node-1", pid=1, groups=groups, info="{}"))


def writes(task: Task, made: CommandList, place=0, *, due=0, out=b"so far") -> Task:
    """A worker tells what a command of its list has written. The list, which the commands before it have left."""
    each = made.commands[place]
    rest = replace(made, commands=made.commands[place:], done=place, begun=1, worker="bob")
    change = Change(id=task.id, data=rest.encode(), labels=list_labels(rest), timespec_ms=-60_000)
    live = LiveOutput(list=made.name, task=task.origin, command=each.id, at=1, done=place, due=due, out=Output.of(out))
    new = NewTask(group=output_group("default"), data=live.encode(), labels=live_labels(live, each))
    _, task = Task.objects.commit(owner=BOB, adds=[new], updates=[change])
    return task
