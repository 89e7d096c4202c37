"""Scenes about servers: kills, contention, gRPC, many tasks."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import httpx

from .. import CannotTry
from ..client import HELD
from ..grpc_client import EVERYBODY
from ..history import History, Truth
from ..outcome import Figure, SceneResult, Violation, outcome_of
from ..processes import StoreServer, free_port
from ..stage import Stage, wait_until
from ..truth import FILE, counts_of, settled
from ..workers import Worker, worker

START_S = 3.0
END_S = 30.0
NOTHING = Truth(living={}, ended={})


def kill_server(stage: Stage) -> SceneResult:
    """kill -9 in turn, of the only one on SQLite; the one that answers then is the one that was started."""
    servers = stage.servers()
    started_s = []
    with stage.load(servers):
        for number in range(stage.pace.server_kills):
            stage.pause(0.3, 2.0)
            server = servers[number % len(servers)]
            server.kill()
            started_s.append(server.start())
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0])
    problems = list(damage(servers[0].folder)) if stage.is_sqlite else []
    longest = Figure(name="serves again within", value=max(started_s), limit=START_S)
    return outcome_of(history, faults=len(started_s), problems=problems, figures=[longest])


def kill_migrate(stage: Stage) -> SceneResult:
    """kill -9 of a first start, at any moment of it; another start makes a store that works."""
    problems: list[str] = []
    for number in range(stage.pace.migrate_kills):
        folder = stage.folder / f"new-{number}"
        server = stage.until_the_end(StoreServer(("up",), folder, {"DATABASE_URL": stage.database_url}))
        server.begin()
        wait_until((folder / FILE).exists, "migrate begins")
        stage.pause(0.0, 1.5)
        server.kill()
        problems += damage(folder)
        server.start()
        if not server.is_ready():
            problems.append("the store is not ready after a start that was killed amid migrate")
        if server.end():
            problems.append(f"the server did not end in good order: {server.last_words()}")
        problems += damage(folder)
    return outcome_of(History([], NOTHING), faults=stage.pace.migrate_kills, problems=problems)


def damage(folder: Path) -> Iterator[str]:
    """What SQLite finds wrong with the file."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        told = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    yield from (f"integrity_check says {line}" for line in told if line != "ok")


def terminate(stage: Stage) -> SceneResult:
    """SIGTERM under load: what was done is answered before the server goes."""
    servers = stage.servers()
    with stage.load(servers):
        time.sleep(stage.pace.seconds / 4)
        began_s = time.monotonic()
        code = servers[-1].end()
        took_s = time.monotonic() - began_s
        servers[-1].start()
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0])
    problems = [f"the server ended with exit code {code}: {servers[-1].last_words()}"] if code else []
    # What has no answer must not have been done: as if it had never been sent, the rest explains all that is there.
    answered = replace(history, requests=[request for request in history.requests if not request.is_in_doubt])
    return outcome_of(
        answered, faults=1, problems=problems, figures=[Figure(name="ended after", value=took_s, limit=END_S)]
    )


def contention(stage: Stage) -> SceneResult:
    servers = stage.servers()
    with stage.load(servers):
        time.sleep(stage.pace.seconds)
    history = stage.history(servers[0])
    answered = sum(request.status == 200 for request in history.requests)
    least = Figure(name="operations", value=answered, limit=stage.pace.least_operations, unit="", is_least=True)
    problems = [f"request {event.path} of client {event.client} was never answered" for event in history.in_doubt]
    for server in servers:
        if code := server.end():
            problems.append(f"the server ended with exit code {code}: {server.last_words()}")
        if "Traceback" in server.log.read_text(errors="replace"):
            problems.append(f"the server logged a traceback: {server.last_words()}")
    return outcome_of(history, faults=0, problems=problems, figures=[least])


KILLS = 4  # As many times fewer than where servers are killed only.
SHARE = 10  # Of the operations where nothing is killed.


def by_grpc(stage: Stage) -> SceneResult:
    """While a server is killed now and then. What the messages don't say of a task is taken from the tables."""
    port = str(free_port())
    server = stage.server(*stage.usual_command, "--grpc-port", port)
    kills = max(1, stage.pace.server_kills // KILLS)
    with stage.load([server], grpc_addresses=[f"127.0.0.1:{port}"]):
        for _ in range(kills):
            stage.pause(stage.pace.seconds / kills / 2, stage.pace.seconds / kills)
            server.kill()
            server.start()
        stage.pause(1.0, 2.0)
    history = stage.history(server)
    answered = sum(event.client == EVERYBODY for event in history.done)
    least = Figure(
        name="changes by gRPC", value=answered, limit=stage.pace.least_operations / SHARE, unit="", is_least=True
    )
    return outcome_of(history, faults=kills, figures=[least])


AT_ONCE = 10_000  # What a commit may hold.
GROUPS = 1_000
CYCLES = 1_000
FEW, WORKER = 10_000, 1_001
LONGER = 1.5  # Times what it takes among few, at most.
LEASE_MS = 60_000
LOOK_EVERY_S = 1.0
METRICS_S = 1.0


def many_tasks(stage: Stage) -> SceneResult:
    """The slowest claims among a million tasks, beside those among ten thousand."""
    server = stage.server()
    one = worker(stage, server, WORKER)
    with closing(one.notes):
        fill(one, FEW)
        few_s = slowest_s(one)
        fill(one, stage.pace.tasks - FEW)
        many_s = slowest_s(one)
    times = Figure(name="p99 of a claim as a multiple of that among few", value=many_s / few_s, limit=LONGER, unit="")
    # A history of so many tasks is more than the checker can hold: what the store counts has to do.
    left = stage.pace.tasks - 2 * CYCLES
    counted = settled(lambda: sum(counts_of(server.url, stage.token).values()), left)
    wrong = [] if counted == left else [Violation(text=f"{left} tasks are left, and {counted} are counted")]
    return SceneResult(operations=4 * CYCLES, faults=0, violations=wrong, figures=[times])


def many_groups(stage: Stage) -> SceneResult:
    """The slowest commits while somebody looks at very many groups, beside those while nobody does."""
    server = stage.server()
    one, groups = worker(stage, server, WORKER), stage.pace.groups
    with closing(one.notes):
        for start in range(0, groups, AT_ONCE):
            names = (f"tenant-{number}" for number in range(start, min(start + AT_ONCE, groups)))
            if not one.committed(adds=[{"group": name} for name in names]):
                raise CannotTry("the groups could not be made")
        alone_s = slowest_commit_s(one, groups)
        with ThreadPoolExecutor(1) as beside, looking(server, stage.token, beside) as took_s:
            watched_s = slowest_commit_s(one, groups)
    added = groups + 2 * CYCLES
    counted = settled(lambda: sum(counts_of(server.url, stage.token).values()), added)
    wrong = [] if counted == added else [Violation(text=f"{added} tasks were added, and {counted} are counted")]
    return SceneResult(
        operations=2 * CYCLES,
        faults=len(took_s),
        violations=wrong,
        figures=[
            Figure(
                name="p99 of a commit as a multiple of that unwatched", value=watched_s / alone_s, limit=LONGER, unit=""
            ),
            Figure(name="slowest answer of /metrics", value=max(took_s), limit=METRICS_S),
        ],
    )


@contextmanager
def looking(server: StoreServer, token: str, beside: ThreadPoolExecutor) -> Iterator[list[float]]:
    """Ask for the metrics every second. Yields how long each answer took, at least one at the end."""
    took_s: list[float] = []
    is_over = Event()

    def look() -> None:
        while not (is_over.is_set() and took_s):
            began_s = time.perf_counter()
            headers = {"Authorization": f"Bearer {token}"}
            httpx.get(f"{server.url}/metrics", headers=headers, timeout=60, trust_env=False).raise_for_status()
            took_s.append(time.perf_counter() - began_s)
            is_over.wait(LOOK_EVERY_S)

    work = beside.submit(look)
    try:
        yield took_s
    finally:
        is_over.set()
        work.result()


def slowest_commit_s(one: Worker, groups: int) -> float:
    """The time that 99 of 100 commits stay below, each to another group."""
    took_s = []
    for number in range(CYCLES):
        began_s = time.perf_counter()
        if not one.committed(adds=[{"group": f"tenant-{number * 7_919 % groups}"}]):
            raise CannotTry("a task could not be added")
        took_s.append(time.perf_counter() - began_s)
    return sorted(took_s)[CYCLES * 99 // 100]


def fill(one: Worker, count: int) -> None:
    """One group in a thousand is the one that is worked on; the others share the rest."""
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        adds = [
            {"group": HELD if number % 2 else f"tenant-{number % GROUPS}", "data": one.unique()} for number in numbers
        ]
        if not one.committed(adds=adds):
            raise CannotTry(f"{len(adds)} tasks could not be added")


def slowest_s(one: Worker) -> float:
    """The time that 99 of 100 claims stay below."""
    took_s = []
    for _ in range(CYCLES):
        began_s = time.perf_counter()
        [task] = one.claimed(1, LEASE_MS)
        took_s.append(time.perf_counter() - began_s)
        one.committed(deletes=[task["id"]])
    return sorted(took_s)[CYCLES * 99 // 100]
