"""Run many client processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx

from lab.testing import NO_TLS, PROJECT, CannotTry

from . import client
from .client import Orders

UNTIL_TOLD_S = 86_400.0 * 7
GOODBYE_S = 120.0  # Clients repeat unanswered requests for a minute.


def set_limits(url: str, token: str) -> None:
    """Limit the groups that the clients use, as the checker knows it."""
    headers = {"Authorization": f"Bearer {token}"}
    for name, limit in client.LIMITS.items():
        address = f"{url}/groups/{name}/limits"
        httpx.put(address, json=limit, headers=headers, trust_env=False, verify=NO_TLS).raise_for_status()


@contextmanager
def at_work(
    addresses: Sequence[str], token: str, folder: Path, *, count: int, seed: str, resends: bool = False
) -> Iterator[None]:
    """Run `count` clients, distributed over the servers. Afterwards their records are complete."""
    processes = [
        begin(
            Orders(
                addresses=list(addresses),
                token=token,
                number=number,
                file=str(folder / f"client-{number}.jsonl"),
                seed=seed,
                seconds=UNTIL_TOLD_S,
                resends=resends,
            )
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


def begin(orders: Orders) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", client.__file__, json.dumps(asdict(orders))],
        cwd=PROJECT,
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
