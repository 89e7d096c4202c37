"""Request `/healthz` every 10 ms and measure the response times.

    python -m lab.chaos.probe 8048

It runs in a separate process, because creating bodies of 60 MB would delay its threads. It ends with its input.
"""

from __future__ import annotations

import http.client
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from lab.testing import PROJECT

EVERY_S = 0.01
PATIENCE_S = 120.0


@contextmanager
def probing(port: int) -> Iterator[list[float]]:
    """Probe the server while the block runs. Afterwards the list contains the response times in seconds."""
    times_s: list[float] = []
    words = [sys.executable, "-m", __name__, str(port)]
    with subprocess.Popen(words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        cast(IO[bytes], process.stdout).readline()  # It has started.
        try:
            yield times_s
        finally:
            answer, _ = process.communicate(timeout=PATIENCE_S)
            times_s += json.loads(answer)


def main() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=PATIENCE_S)
    times_s: list[float] = []
    sys.stdout.write("\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        began_s = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        times_s.append(time.monotonic() - began_s)
    json.dump(times_s, sys.stdout)


if __name__ == "__main__":
    main()
