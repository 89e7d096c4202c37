"""Whatever happens in whatever order, each command ends where its runs say, exactly once."""

from collections import Counter, defaultdict
from random import Random
from unittest.mock import patch

import pytest
from django.db import transaction
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tasks_app.commands import make_lists, process_closed, reopen, stash, submit, unstash
from tasks_app.managers import TaskManager
from tasks_app.models import Task
from taskstore.errors import StoreUnavailable
from taskstore.types.command_record import OF_LISTS, Command, CommandList, CommandStatus, Run, group_of
from taskstore.types.commands import Submission
from taskstore.types.tasks import Change

from ..examples import examples
from .commands import commands_in

pytestmark = pytest.mark.django_db

PROJECT = "default"
OPEN, CLOSED = group_of(PROJECT, CommandStatus.OPEN), group_of(PROJECT, CommandStatus.CLOSED)
LENGTH = 25
FAR = 4_000_000_000  # The until of a command that is never late.
ENDS = (CommandStatus.COMPLETED, CommandStatus.FAILED_COUNT, CommandStatus.FAILED_TIME)


class Story:
    """A store, and what a simple model says of it: the runs of each command that were committed."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.submitted: dict[str, Command] = {}
        self.runs: dict[str, list[Run]] = defaultdict(list)
        self.held: list[tuple[int, Task]] = []  # Lists, each with its worker, who has not closed it yet.

    def submit(self) -> None:
        asked = [
            Submission(cmd="true", until=self.chance.choice((FAR, FAR, FAR, 1)), max_fails=self.chance.randint(1, 3))
            for _ in range(self.chance.randint(1, 6))
        ]
        commands = submit(PROJECT, asked, stashed=self.chance.random() < 0.2)
        self.submitted |= {command.first_id: command for command in commands}

    def claim(self) -> None:
        worker = self.chance.randint(1, 10**9)
        self.held += [(worker, task) for task in Task.objects.claim(OPEN, owner=worker)]

    def close(self) -> None:
        """A worker is done with its list, of which it may have had no time for the last ones."""
        if not self.held:
            return
        worker, task = self.held.pop(self.chance.randrange(len(self.held)))
        made = CommandList.decode(bytes(task.data))
        number = self.chance.randint(0, len(made.commands))
        ran = [replace(command, run=self._run(worker)) for command in made.commands[:number]]
        closed = replace(
            made, commands=(*ran, *made.commands[number:]), worker=f"w_{worker}", started=100, finished=200
        )
        change = Change(id=task.id, group=CLOSED, data=closed.encode())
        Task.objects.commit(owner=worker, updates=[change])
        for command in ran:
            assert command.run
            self.runs[command.first_id].append(command.run)

    def lose(self) -> None:
        """A worker dies, and somebody says so."""
        if self.held:
            _, task = self.held.pop(self.chance.randrange(len(self.held)))
            assert reopen(PROJECT, task.id)

    def make(self) -> None:
        self._perhaps_dying(make_lists)

    def process(self) -> None:
        self._perhaps_dying(process_closed)

    def stash(self) -> None:
        self._perhaps_dying(stash)

    def unstash(self) -> None:
        self._perhaps_dying(unstash)

    def end(self) -> None:
        """Whatever is under way comes to its end."""
        while self.held:
            self.lose()
        unstash(PROJECT)
        while process_closed(PROJECT) + make_lists(PROJECT) or Task.objects.group(OPEN, owned=True).exists():
            self.claim()
            self.close()

    def _run(self, worker: int) -> Run:
        return Run(worker=f"w_{worker}", started=100, ended=101, exit_code=self.chance.choice((0, 0, 1)))

    def _perhaps_dying(self, verb) -> None:
        """The process may die with any of its commits: before it, or after it but before it is told."""
        fatal, is_done = self.chance.randint(0, 3), self.chance.random() < 0.5
        commit, number = TaskManager.commit, 0

        def dying(manager, **asked):
            nonlocal number
            number += 1
            if number == fatal and not is_done:
                raise StoreUnavailable("the process dies")
            tasks = commit(manager, **asked)
            if number == fatal:
                raise DiedAfterwards
            return tasks

        with patch.object(TaskManager, "commit", dying):
            try:
                verb(PROJECT)
            except (StoreUnavailable, DiedAfterwards):
                return


class DiedAfterwards(Exception):
    pass


STEPS = ("submit", "make", "claim", "close", "close", "lose", "process", "stash", "unstash")


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 2**32))
def test_each_command_ends_where_its_runs_say(seed):
    with transaction.atomic():
        with override_settings(TASKSTORE_COMMAND_LISTS="*=3/10min/0s"):
            tell_story(Story(Random(seed)))
        transaction.set_rollback(True)


def tell_story(story: Story) -> None:
    story.submit()
    for _ in range(LENGTH):
        getattr(story, story.chance.choice(STEPS))()
        assert each_is_somewhere_once(story)
    story.end()
    ended = {status: commands_in(PROJECT, status) for status in ENDS}
    assert Counter(command.first_id for found in ended.values() for command in found) == Counter([*story.submitted])
    for status, found in ended.items():
        for command in found:
            assert_ended_rightly(command, status, story)


def assert_ended_rightly(command: Command, status: CommandStatus, story: Story) -> None:
    runs = story.runs[command.first_id]
    earlier = [each for each in commands_in(PROJECT, CommandStatus.FAILED_ARCHIVE) if each.first_id == command.first_id]
    assert [each.fails for each in earlier] == list(range(len(earlier)))
    assert command.id == f"{command.first_id}_{len(earlier)}"
    assert [each.run for each in [*earlier, command] if each.run] == runs
    if story.submitted[command.first_id].until == 1:
        assert (status, runs) == (CommandStatus.FAILED_TIME, [])
    elif runs[-1].failed:
        assert (status, len(runs)) == (CommandStatus.FAILED_COUNT, command.max_fails)
    else:
        assert status is CommandStatus.COMPLETED


def each_is_somewhere_once(story: Story) -> bool:
    """Whether of each command there is one that waits, runs or has ended; archives have earlier runs."""
    found: list[Command] = []
    for task in Task.objects.get_queryset():
        status = task.group.rpartition("/")[2]
        if status in OF_LISTS:
            found += CommandList.decode(bytes(task.data)).commands
        elif status != CommandStatus.FAILED_ARCHIVE:
            found.append(Command.decode(bytes(task.data)))
    return Counter(command.first_id for command in found) == Counter([*story.submitted])
