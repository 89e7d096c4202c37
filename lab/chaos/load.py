"""Run many client processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lab.testing import PROJECT, CannotTry

from . import client
from .client import Orders
from .processes import faked_clock

UNTIL_TOLD_S = 86_400.0 * 7
DAY_MS = 86_400_000
BY_HTTP = ("-I", client.__file__)
BY_GRPC = ("-m", "lab.chaos.grpc_client")
GOODBYE_S = 120.0  # Clients repeat unanswered requests for a minute.


@contextmanager
def at_work(
    addresses: Sequence[str],
    token: str,
    folder: Path,
    *,
    count: int,
    seed: str,
    resends: bool = False,
    days_off: Sequence[int] = (0,),
    grpc_addresses: Sequence[str] = (),
) -> Iterator[None]:
    """Run `count` clients, distributed over the servers. Afterwards their records are complete.

    `days_off`: by how much their clocks are wrong, in turn. `grpc_addresses`: every second client goes there.
    """
    by_grpc = [bool(grpc_addresses) and number % 2 == 0 for number in range(count + 1)]
    processes = [
        begin(
            Orders(
                addresses=list(grpc_addresses if by_grpc[number] else addresses),
                token=token,
                number=number,
                file=str(folder / f"client-{number}.jsonl"),
                seed=seed,
                seconds=UNTIL_TOLD_S,
                resends=resends,
                clock_ms=days_off[number % len(days_off)] * DAY_MS,
            ),
            BY_GRPC if by_grpc[number] else BY_HTTP,
        )
        for number in range(1, count + 1)
    ]
    try:
        yield
        end(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def begin(orders: Orders, program: Sequence[str] = BY_HTTP) -> subprocess.Popen[bytes]:
    clock = faked_clock(f"{orders.clock_ms // DAY_MS:+d}d") if orders.clock_ms else {}
    return subprocess.Popen(
        [sys.executable, *program, json.dumps(asdict(orders))],
        cwd=PROJECT,
        env={**os.environ, **clock},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let each client finish its move. Raises CannotTry if one failed, because its records are unreliable."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            code = process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            raise CannotTry("a client waits for ever") from None
        if code:
            raise CannotTry(f"a client broke down with exit code {code}")
