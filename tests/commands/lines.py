"""Lines for a shell, run by a real runner."""

import os
import time
from dataclasses import replace

from taskstore.commands.messages import Clock, Ran, Setup, Wrote
from taskstore.commands.runner_link import RunnerLink
from taskstore.types.command_record import Command

LATER = 2 * 10**9  # No test waits so long.
LIMIT_S = 60.0
CLOCK = Clock(time.time() - time.monotonic())  # That of this machine.


def command(line, number=0, **members):
    return Command(
        **{"id": f"{number}_0", "cmd": line, "until": LATER, "expected_duration": 1, "max_fails": 1, **members}
    )


class Lines:
    """Runs lines in a folder, and kills what is left of them."""

    def __init__(self, folder):
        self.setup = Setup(  # noqa: S604 - its shell is not the one of subprocess.
            worker="ann",
            shell="/bin/sh",
            cwd=str(folder),
            env=dict(os.environ),
            memory_bytes=None,
            output_bytes=2_000,
            most_bytes=2**20,
        )
        self._links = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for link in self._links:
            link.end()

    def link(self, **how):
        self._links.append(RunnerLink(replace(self.setup, **how)))
        return self._links[-1]

    def messages(self, *lines, limit_s=LIMIT_S, **how):
        commands = [(command(line, number), limit_s) for number, line in enumerate(lines)]
        return [message for message in self.link(**how).run(commands, CLOCK) if message]

    def run(self, line, **how):
        """What came of one line."""
        return self.ran(line, **how).run

    def ran(self, line, **how):
        return next(message for message in self.messages(line, **how) if isinstance(message, Ran))

    def wrote(self, line, **how):
        """What was told while it ran."""
        return [message for message in self.messages(line, **how) if isinstance(message, Wrote)]
