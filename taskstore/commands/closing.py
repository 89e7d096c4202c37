"""The commits that end the work on a list. Pure."""

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

LEFT_BYTES = 4 * 2**10  # Kept of each output when the store rejects the whole.


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A list whose work has ended, with the runs of all or some of its commands."""

    project: str
    commands: CommandList
    runs: Mapping[int, Run]  # By the position of the command in the list.
    worker: str
    started: int
    finished: int
    is_shortened: bool = False

    def closed(self) -> CommandList:
        """Return the list with the commands that have a run or are too late for one."""
        done = [replace(command, run=self.runs.get(place)) for place, command in self._split(is_done=True)]
        return replace(
            self.commands,
            commands=tuple(done),
            worker=self.worker,
            started=self.started,
            finished=self.finished,
        )

    def rest(self) -> CommandList:
        """Return the list with the commands that remain for other workers."""
        return replace(self.commands, commands=tuple(command for _, command in self._split(is_done=False)))

    def without_most_output(self) -> Finished:
        """Return it with only the ends of the outputs, for a store that rejects the whole as too large."""
        runs = {place: replace(run, out=_end_of(run.out), err=_end_of(run.err)) for place, run in self.runs.items()}
        return replace(self, runs=runs, is_shortened=True)

    def _split(self, *, is_done: bool) -> Sequence[tuple[int, Command]]:
        return [
            (place, command)
            for place, command in enumerate(self.commands.commands)
            if (place in self.runs or is_late(command, self.finished)) is is_done
        ]


def closed(task: Task, finished: Finished, others: Collection[int]) -> Result:
    """Return the commit that closes a list and reopens the commands that were not started.

    `others`: ids of further tasks to delete with it.
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
    """Return the commit that reopens a list unchanged."""
    return Result(updates=[Change(id=task.id, release=True)], deletes=[*others])


def laid_aside(task: Task, project: str, why: str) -> Result:
    """Return the commit that parks a task that is not a list, so that no worker claims it again."""
    aside = NewTask.successor_of(task, group=group_of(project, CommandStatus.OPEN_STASHED), error=why)
    return Result(adds=[aside], deletes=[task.id])


def _end_of(output: Output) -> Output:
    kept = output.kept
    lost = max(0, len(kept) - LEFT_BYTES)
    return Output.of(kept[lost:], missing=output.missing + lost) if lost else output
