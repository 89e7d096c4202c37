"""A project of commands, and who runs them: a worker in a thread, or one in a process of its own that can be killed."""

import itertools
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

from lab.testing import PROJECT
from tasks_app.commands import process_closed
from taskstore import Client
from taskstore.commands.worker import CommandWorker
from taskstore.types.command_record import (
    Command,
    CommandList,
    CommandStatus,
    LiveOutput,
    group_of,
    new_list_task,
    output_group,
)
from tests.client.patience import wait_for_last_requests
from tests.jobs.workers import PATIENCE_S, eventually

from .lines import command

NAME = "default"
OTHERS = itertools.count(1_000)  # Ids of clients: those of a process have the same otherwise.
SETTLED = [
    CommandStatus.COMPLETED,
    CommandStatus.FAILED_COUNT,
    CommandStatus.FAILED_TIME,
    CommandStatus.FAILED_ARCHIVE,
    CommandStatus.NEW,
]


class Project:
    """Its commands, by a client that may change them."""

    def __init__(self, store, token):
        self.store, self.token = store, token
        self._workers = 0  # In this process.

    def add_list(self, *lines, name="1000", **members):
        """An open list. The id of its task."""
        commands = [command(line, int(name) + number, **members) for number, line in enumerate(lines)]
        made = CommandList(name=name, commands=tuple(commands))
        [task] = self.store.commit(adds=[new_list_task(NAME, made)])
        return task.id

    def another(self, things):
        """A client for another worker, which is closed with the things."""
        return things.enter_context(Client(self.store.url, token=self.token, client_id=next(OTHERS)))

    def tasks(self, status):
        return list(self.store.group(group_of(NAME, status), owned=True))

    def lists(self, status):
        return [CommandList.decode(task.data) for task in self.tasks(status)]

    def closed(self, number=1, patience_s=PATIENCE_S):
        """The closed lists, once there are so many."""
        assert eventually(lambda: len(self.tasks(CommandStatus.CLOSED)) >= number, patience_s)
        return sorted(self.lists(CommandStatus.CLOSED), key=lambda found: found.name)

    def ended(self, number=1, patience_s=PATIENCE_S):
        """The commands of the closed lists, once there are so many."""
        assert eventually(
            lambda: sum(len(found.commands) for found in self.lists(CommandStatus.CLOSED)) >= number, patience_s
        )
        commands = [each for found in self.lists(CommandStatus.CLOSED) for each in found.commands]
        return sorted(commands, key=lambda each: each.id)

    def settled(self):
        """What became of the commands of all closed lists: status and command."""
        while process_closed(NAME):
            pass
        return [(status, Command.decode(task.data)) for status in SETTLED for task in self.tasks(status)]

    def live(self):
        return [LiveOutput.decode(task.data) for task in self.store.group(output_group(NAME), owned=True)]

    @contextmanager
    def worker(self, store=None, **options):
        options = {"name": "ann", "wait_ms": 200, "grace_s": 0.5, **options}
        worker = CommandWorker(store or self.store, [NAME], **options)
        problems: list[Exception] = []
        thread = threading.Thread(target=run, args=[worker, problems])
        thread.start()
        self._workers += 1
        try:
            yield worker
        finally:
            worker.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            self._workers -= 1
            if not self._workers:
                wait_for_last_requests()
            for problem in problems:
                raise problem

    @contextmanager
    def worker_process(self, url=None, **options):
        """Ends by kill -9."""
        code = (
            "from taskstore import Client; from taskstore.commands.worker import CommandWorker;"
            f" CommandWorker(Client(), ['{NAME}'], **{options!r}).run()"
        )
        environment = {**os.environ, "TASKSTORE_URL": url or self.store.url, "TASKSTORE_TOKEN": self.token}
        process = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def run(worker, problems):
    try:
        worker.run()
    except Exception as problem:
        problems.append(problem)
