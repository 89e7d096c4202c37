"""A contender's client, from the side of who gives it orders."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from taskstore_project.testing import PROJECT
from taskstore_project.testing.suite import clean_environment

from . import CannotMeasure
from .load import Load

PATIENCE_S = 600  # For filling a store with a million tasks over HTTP.


@dataclass(frozen=True, slots=True)
class ClientProcess:
    process: subprocess.Popen[bytes]
    orders: IO[bytes]
    answers: IO[bytes]
    log: Path  # What it complains of.

    def ask(self, load: Load, do: str, **order: Any) -> Any:
        """Give an order, and return its answer.

        Raises CannotMeasure when the client fails or does not answer.
        """
        self.tell({"do": do, "load": load.as_json(), **order})
        return self.answer()

    def tell(self, line: Mapping[str, Any]) -> None:
        try:
            self.orders.write(json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            raise CannotMeasure(self._last_words()) from None

    def answer(self) -> Any:
        # One line, written at once.
        readable, _, _ = select.select([self.answers], [], [], PATIENCE_S)
        line = self.answers.readline() if readable else b""
        if not line:
            raise CannotMeasure(self._last_words() if readable else f"the client was silent for {PATIENCE_S} s")
        found = json.loads(line)
        if isinstance(found, dict) and "problem" in found:
            raise CannotMeasure(found["problem"])
        return found

    def _last_words(self) -> str:
        self.process.wait()
        said = self.log.read_text(errors="replace").strip()
        return said.rpartition("\n")[2] or f"the client ended with exit code {self.process.returncode}"


@contextmanager
def client_process(
    client: str, where: Mapping[str, Any], folder: Path, settings: Mapping[str, str]
) -> Iterator[ClientProcess]:
    """A client that waits for orders. `folder`: the place's, `settings`: this store's, as environment variables."""
    log = folder / "client.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "taskstore_project.benchmarks.clients"],
            bufsize=0,
            cwd=PROJECT,
            env={**clean_environment(folder / "data"), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    found = ClientProcess(process, cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout), log)
    try:
        found.tell({"client": client, "where": where})
        yield found
    finally:
        # All of its workers with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
