"""This store: the commands of `commands worker`, which the benchmark starts when all of them are in lists."""

import time

import task

from taskstore import Client
from taskstore.types.command_record import CommandStatus, group_of
from taskstore.types.commands import Submission

LINE = ":"  # As quick as a line can be.
# By what is usually expected ten would be a list.
SUBMISSION = Submission(cmd=LINE, expected_duration=1)

if task.IS_ADDING:
    client = Client()
    for payloads in task.batches():
        client.commands.submit(task.QUEUE, [SUBMISSION] * len(payloads))
    while next(client.group(group_of(task.QUEUE, CommandStatus.NEW), limit=1), None):
        time.sleep(0.05)
