"""What a worker commits when it is done with a list. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..types.command_record import (
    Command,
    CommandList,
    CommandStatus,
    Output,
    Run,
    group_of,
    is_late,
    list_labels,
)
from ..types.tasks import Change, NewTask
from ..worker.handlers import Result

if TYPE_CHECKING:
    from ..types.tasks import Task

LEFT_BYTES = 4 * 2**10  # Of each output, when the store does not take all of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A list that a worker is done with: all of it, or a part."""

    project: str
    commands: CommandList
    runs: Mapping[int, Run]  # By the place of the command.
    worker: str
    started: int
    finished: int
    is_shortened: bool = False

    def closed(self) -> CommandList:
        """Those that have a run, and those that are too late for one."""
        done = [replace(command, run=self.runs.get(place)) for place, command in self._split(is_done=True)]
        return replace(
            self.commands,
            commands=tuple(done),
            worker=self.worker,
            started=self.started,
            finished=self.finished,
        )

    def rest(self) -> CommandList:
        """What others are to run."""
        return replace(self.commands, commands=tuple(command for _, command in self._split(is_done=False)))

    def without_most_output(self) -> Finished:
        """For a store that takes less at once."""
        return replace(self, runs={place: _shortened(run) for place, run in self.runs.items()}, is_shortened=True)

    def _split(self, *, is_done: bool) -> Sequence[tuple[int, Command]]:
        return [
            (place, command)
            for place, command in enumerate(self.commands.commands)
            if (place in self.runs or is_late(command, self.finished)) is is_done
        ]


def closed(task: Task, finished: Finished, others: Collection[int]) -> Result:
    """The commit that ends the work on a list: it is closed, and what was not begun is open at once.

    `others`: ids of tasks that are deleted with it.
    """
    done, rest = finished.closed(), finished.rest()
    if not done.commands:
        return given_back(task, others)
    parts = [(task.id, CommandStatus.CLOSED, done)] + ([(0, CommandStatus.OPEN, rest)] if rest.commands else [])
    adds = [
        NewTask.successor_of(
            task,
            id=id,
            group=group_of(finished.project, status),
            data=part.encode(),
            data_type="",
            error="",
            labels=list_labels(part),
        )
        for id, status, part in parts
    ]
    return Result(adds=adds, deletes=[task.id, *others])


def given_back(task: Task, others: Collection[int] = ()) -> Result:
    """Open at once, as it was."""
    return Result(updates=[Change(id=task.id, release=True)], deletes=[*others])


def laid_aside(task: Task, project: str, why: str) -> Result:
    """What is no list: nobody should claim it again, and somebody should look at it."""
    aside = NewTask.successor_of(task, group=group_of(project, CommandStatus.OPEN_STASHED), error=why)
    return Result(adds=[aside], deletes=[task.id])


def _shortened(run: Run) -> Run:
    return replace(run, out=_end_of(run.out), err=_end_of(run.err))


def _end_of(output: Output) -> Output:
    kept = output.kept
    lost = max(0, len(kept) - LEFT_BYTES)
    return Output.of(kept[lost:], missing=output.missing + lost) if lost else output
