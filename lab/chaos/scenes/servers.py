"""Scenes about servers: kills, broken connections, contention, gRPC, many tasks."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import httpx

from lab.testing import CannotTry

from ..client import HELD, Worker
from ..grpc_client import EVERYBODY
from ..history import History, Truth
from ..outcome import Figure, SceneResult, Violation, outcome_of, p99
from ..processes import StoreServer, free_port
from ..proxy import Proxy
from ..stage import Stage, wait_until
from ..truth import FILE, counts_of, settled

START_S = 3.0
END_S = 30.0
NOTHING = Truth(living={}, ended={})


def kill_server(stage: Stage) -> SceneResult:
    """Kill servers in turn with kill -9, and start them again."""
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
    """Kill first starts at random moments with kill -9; the next start must make a working store."""
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
    """Yield the problems that SQLite finds in the file."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        told = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    yield from (f"integrity_check says {line}" for line in told if line != "ok")


def cut_network(stage: Stage) -> SceneResult:
    """Break connections before, in and after requests, which clients repeat with their keys."""
    servers = stage.servers()
    proxies = [Proxy(server.port, f"{stage.seed}/{number}") for number, server in enumerate(servers)]
    with ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy.running())
        with stage.load(proxies, resends=True):
            wait_until(lambda: cuts(proxies) >= stage.pace.cuts, f"there are {stage.pace.cuts} cuts")
    history = stage.history(servers[0])
    doubts = [event for event in history.in_doubt if not event.is_claim]
    problems = [f"request {event.key} of client {event.client} received no response for a minute" for event in doubts]
    return outcome_of(history, faults=cuts(proxies), problems=problems)


def cuts(proxies: Sequence[Proxy]) -> int:
    return sum(proxy.faults.total() for proxy in proxies)


def terminate(stage: Stage) -> SceneResult:
    """Send SIGTERM under load: every change must be answered before the server ends."""
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
    # Requests without an answer must not have been done, so the others must explain the whole store.
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
    problems = [
        f"request {event.path} of client {event.client} never received a response" for event in history.in_doubt
    ]
    for server in servers:
        if code := server.end():
            problems.append(f"the server ended with exit code {code}: {server.last_words()}")
        if "Traceback" in server.log.read_text(errors="replace"):
            problems.append(f"the server logged a traceback: {server.last_words()}")
    return outcome_of(history, faults=0, problems=problems, figures=[least])


KILLS = 4  # The factor by which there are fewer kills than in `kill-server`.
SHARE = 10  # The factor by which fewer operations are required than in `contention`.


def by_grpc(stage: Stage) -> SceneResult:
    """Use gRPC and HTTP while a server is killed from time to time."""
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


AT_ONCE = 10_000  # The largest commit.
GROUPS = 1_000
CYCLES = 1_000
FEW, WORKER = 10_000, 1_001
LONGER = 1.5  # The permitted factor compared with few tasks or groups.
LEASE_MS = 60_000
LOOK_EVERY_S = 1.0
METRICS_S = 1.0


def many_tasks(stage: Stage) -> SceneResult:
    """Compare the slowest claims among a million tasks with those among ten thousand."""
    server = stage.server()
    one = stage.worker(server, WORKER)
    with closing(one.notes):
        fill(one, FEW)
        few_s = slowest_s(one)
        fill(one, stage.pace.tasks - FEW)
        many_s = slowest_s(one)
    times = Figure(name="p99 of a claim as a multiple of that among few", value=many_s / few_s, limit=LONGER, unit="")
    # The checker can't hold a history of so many tasks, so only compare the store's counts.
    left = stage.pace.tasks - 2 * CYCLES
    counted = settled(lambda: sum(counts_of(server.url, stage.token).values()), left)
    wrong = [] if counted == left else [Violation(text=f"{left} tasks are left, and {counted} are counted")]
    return SceneResult(operations=4 * CYCLES, faults=0, violations=wrong, figures=[times])


def many_groups(stage: Stage) -> SceneResult:
    """Compare the slowest commits while a client reads the metrics of many groups with those without it."""
    server = stage.server()
    one, groups = stage.worker(server, WORKER), stage.pace.groups
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
            Figure(name="slowest response of /metrics", value=max(took_s), limit=METRICS_S),
        ],
    )


@contextmanager
def looking(server: StoreServer, token: str, beside: ThreadPoolExecutor) -> Iterator[list[float]]:
    """Read the metrics every second. The list holds the duration of each response, at least one at the end."""
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
    """Return the p99 of commits, each to another group."""
    took_s = []
    for number in range(CYCLES):
        began_s = time.perf_counter()
        if not one.committed(adds=[{"group": f"tenant-{number * 7_919 % groups}"}]):
            raise CannotTry("a task could not be added")
        took_s.append(time.perf_counter() - began_s)
    return p99(took_s)


def fill(one: Worker, count: int) -> None:
    """Add tasks: half of them to the group that is worked on, the others to many groups."""
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        adds = [
            {"group": HELD if number % 2 else f"tenant-{number % GROUPS}", "data": one.unique()} for number in numbers
        ]
        if not one.committed(adds=adds):
            raise CannotTry(f"{len(adds)} tasks could not be added")


def slowest_s(one: Worker) -> float:
    """Return the p99 of claims."""
    took_s = []
    for _ in range(CYCLES):
        began_s = time.perf_counter()
        [task] = one.claimed(1, LEASE_MS)
        took_s.append(time.perf_counter() - began_s)
        one.committed(deletes=[task["id"]])
    return p99(took_s)
