"""Workers and the server are killed at random: every command ends once, with its outputs, and each run is counted."""

import random
import time
from collections import Counter, defaultdict
from contextlib import ExitStack

import pytest

from taskstore import Client
from taskstore.types.command_record import FINAL, RESULTS, Command, CommandStatus, group_of, output_group
from taskstore.types.commands import Submission
from tests.jobs.workers import eventually
from tests.server.harness import Store, free_port

from .projects import NAME, Project

pytestmark = pytest.mark.stress

COMMANDS, WORKERS, WORKERS_KILLED, SERVERS_KILLED = 400, 4, 12, 3
MAX_FAILS = 3
KINDS = ("quick", "slow", "failing", "late")
AT_ONCE = 1_000
PATIENCE_S = 300
LISTS = "*=20/10min/1s"
SHORT_LEASES = {"least_lease_s": 3, "least_timeout_s": 3, "wait_ms": 2_000}


def test_every_command_ends_once_whoever_is_killed(store: Store):
    torment(store, COMMANDS, WORKERS_KILLED, SERVERS_KILLED)


def torment(store, commands, workers_killed, servers_killed):
    chance = random.Random(7)
    with ExitStack() as things:
        server = Restarted(store, things)
        project = server.project(things)
        expected = submitted(project, commands)
        at_work = [begun(project, things, number) for number in range(WORKERS)]
        victims = ["worker"] * workers_killed + ["server"] * servers_killed
        chance.shuffle(victims)
        for number, victim in enumerate(victims, WORKERS):
            time.sleep(min(2, chance.expovariate(2.5)))
            if victim == "server":
                server.kill_and_start()
            else:
                end(at_work.pop(chance.randrange(WORKERS)))
                at_work.append(begun(project, things, number))
        assert eventually(lambda: len(ended(project)) == commands, PATIENCE_S), left(project)
        check(project, expected)
        assert eventually(lambda: not project.live())
        return project


class Restarted:
    """A server that is killed and started again, at the same address."""

    def __init__(self, store, things):
        self._store, self._port, self._things = store, str(free_port()), things
        self._start()

    def project(self, things):
        made = self._store.manage("token", "create", "ann", "--scope", "commands")
        [token] = [line.strip() for line in made.stdout.splitlines() if " " not in line.strip()]
        return Project(things.enter_context(Client(self._server.url, token=token, patience_s=120)), token)

    def kill_and_start(self):
        self._server.kill()
        self._start()

    def _start(self):
        up = self._store.up("--port", self._port, "--commands", TASKSTORE_COMMAND_LISTS=LISTS)
        self._server = self._things.enter_context(up)


def submitted(project, number):
    """The kind of each command, by its first id."""
    kinds = [KINDS[place % len(KINDS)] for place in range(number)]
    made = []
    for start in range(0, number, AT_ONCE):
        asked = [submission(kind, start + place) for place, kind in enumerate(kinds[start : start + AT_ONCE])]
        made += project.store.commands.submit(NAME, asked)
    return {command.first_id: (kind, place) for place, (command, kind) in enumerate(zip(made, kinds, strict=True))}


def submission(kind, place):
    lines = {
        "quick": f"echo out {place}",
        "slow": f"echo out {place}; sleep 0.1",
        "failing": f"echo out {place}; exit 3",
        "late": "echo never",
    }
    until = 1 if kind == "late" else None
    return Submission(cmd=lines[kind], expected_duration=1, max_fails=MAX_FAILS, until=until)


def begun(project, things, number):
    return things.enter_context(project.worker_process(name=f"worker-{number}", **SHORT_LEASES))


def end(worker):
    worker.kill()
    worker.wait()


def commands_in(project, status):
    return [Command.decode(task.data) for task in project.store.group(group_of(NAME, status), owned=True)]


def ended(project):
    return [command for status in FINAL for command in commands_in(project, status)]


def left(project):
    return {stats.group: (stats.ready, stats.claimed) for stats in project.store.stats().groups}


def check(project, expected):
    failed: dict[str, list[Command]] = defaultdict(list)
    for command in commands_in(project, CommandStatus.FAILED_ARCHIVE):
        failed[command.first_id].append(command)
    finals: Counter[str] = Counter()
    for status in FINAL:
        for command in commands_in(project, status):
            finals[command.first_id] += 1
            kind, place = expected[command.first_id]
            check_end(kind, place, status, command, failed[command.first_id])
    assert finals == dict.fromkeys(expected, 1)
    assert set(left(project)) - {output_group(NAME)} <= {group_of(NAME, status) for status in RESULTS}


def check_end(kind, place, status, command, failed):
    """`failed`: its earlier runs."""
    runs = [*failed, command]
    assert sorted(each.fails for each in runs) == list(range(len(runs)))
    if kind == "late":
        assert (status, command.run, failed) == (CommandStatus.FAILED_TIME, None, [])
        return
    assert all(each.list.split("_")[1] == each.run.worker for each in runs)
    lost = [each for each in runs if each.run.exit_code is None]
    for each in lost:
        assert each.run.err.text == f"the worker {each.run.worker} was lost while it ran this command\n"
    ran = [each for each in runs if each not in lost]
    assert {each.run.out.text for each in ran} <= {f"out {place}\n"}
    if kind == "failing" or len(lost) == MAX_FAILS:
        assert (status, len(runs)) == (CommandStatus.FAILED_COUNT, MAX_FAILS)
        assert {(each.run.exit_code, each.run.err.text) for each in ran} <= {(3, "ended with 3\n")}
    else:
        assert (status, len(ran), command.run.exit_code) == (CommandStatus.COMPLETED, 1, 0)
