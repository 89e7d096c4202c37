"""Workers whose results wait for slow commits: leases end, tasks are stolen, workers and servers are killed.

    python -m lab.chaos.scenes.settling '{"url": "http://127.0.0.1:8048", "token": "...", "seed": "7"}'

is one of the workers. Each task that it finishes leaves a receipt, in the same commit.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from lab.testing.places import wait_until
from taskstore import Client, NewTask, Task, TaskStoreError, Worker

from ..outcome import SceneResult, Violation
from ..proxy import Proxy
from ..stage import Stage

WORK, RECEIPTS, NUMBER = "work", "receipts", "number"
WORKERS = 2  # Processes.
LEASE_MS = 1_000
STOLEN = 0.1  # The share of the tasks.
AT_ONCE = 100  # Tasks added in a commit.
PAUSE_S = 0.2  # Between these.


def settling(stage: Stage) -> SceneResult:
    """Kill workers and servers, cut connections and steal tasks: each task leaves one receipt."""
    server = stage.server()
    proxy = Proxy(server.port, stage.seed)
    client = Client(server.url, token=stage.token)
    with ExitStack() as stack:
        stack.enter_context(proxy.running())
        added = stack.enter_context(adding(client))
        workers = [stack.enter_context(working(stage, proxy.address, number)) for number in range(WORKERS)]
        for number in range(stage.pace.server_kills):
            stage.pause(1.0, 3.0)
            if number % 2:
                server.kill()
                server.start()
            else:
                workers[number // 2 % WORKERS].kill()
                workers[number // 2 % WORKERS] = stack.enter_context(working(stage, proxy.address, number + WORKERS))
        stage.pause(1.0, 3.0)
    with working(stage, server.address, number=-1):
        wait_until(lambda: not any(client.group(WORK, owned=True)), "all tasks are done")
    found = Counter(int(task.labels[NUMBER]) for task in client.group(RECEIPTS))
    lost = [number for number in added if not found[number]]
    twice = [number for number, receipts in found.items() if receipts > 1]
    failed = [group for group in client.groups() if group not in (WORK, RECEIPTS)]
    problems = [f"{len(lost)} tasks left no receipt: {lost[:9]}"] if lost else []
    problems += [f"{len(twice)} tasks left several receipts: {twice[:9]}"] if twice else []
    problems += [f"tasks were moved to {failed}"] if failed else []
    return SceneResult(
        operations=len(added),
        faults=stage.pace.server_kills + proxy.faults.total(),
        violations=[Violation(text=text) for text in problems],
    )


@contextmanager
def adding(client: Client) -> Iterator[list[int]]:
    """Add tasks until the block ends. Yields the numbers of those that were acknowledged."""
    acknowledged: list[int] = []
    is_over = Event()

    def add() -> None:
        first = 0
        while not is_over.wait(PAUSE_S):
            numbers = range(first, first + AT_ONCE)
            first += AT_ONCE
            with suppress(TaskStoreError):
                client.commit(adds=[NewTask(group=WORK, labels={NUMBER: str(number)}) for number in numbers])
                acknowledged.extend(numbers)

    thread = Thread(target=add)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()


@contextmanager
def working(stage: Stage, address: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process, which is killed at the end of the block."""
    orders = {"url": f"http://{address}", "token": stage.token, "seed": f"{stage.seed}/{number}"}
    with (stage.folder / f"worker-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(orders)],
            cwd=PROJECT,
            env=clean_environment(stage.folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main(url: str, token: str, seed: str) -> None:
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret.
    store = Client(url, token=token, timeout_s=2)
    thief = Client(url, token=token, client_id=store.id, patience_s=0)
    worker = Worker(store, lease_ms=LEASE_MS, threads=32, wait_ms=1_000)

    @worker.handle(WORK, max_attempts=10_000)
    async def work(task: Task) -> NewTask:
        await asyncio.sleep(chance.uniform(0, 0.1))
        if chance.random() < STOLEN:
            with suppress(TaskStoreError):
                await asyncio.to_thread(thief.release, task)
        return NewTask(group=RECEIPTS, labels=task.labels)

    worker.run()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
