"""What runs the blocks of a page: one shell and one interpreter, in a folder that looks like the checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue

import yaml

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from lab.testing.processes import ending_with_us

from ..server.harness import Server, Store
from .needs import NEEDS
from .pages import Block

PATIENCE_S = 120  # For a block; the machine may be busy.
DONE = "-- the block is done --"
# Each reads the names of files, line by line, and runs what is in them within the same process.
SHELL = (
    'while read -r file; do set -euo pipefail; . "$file" </dev/null; set +eu; printf "\\n%s\\n" ' + f"'{DONE}'; done"
)
PYTHON = f"""
import sys
space = {{"__name__": "__main__"}}
for line in sys.stdin:
    with open(line.strip()) as file:
        exec(compile(file.read(), file.name, "exec"), space)
    print("\\n{DONE}", flush=True)
"""


class Failed(Exception):
    """A block did not do what its page promises; the text says which one, and what it printed."""


class Interpreter:
    """A process that runs the blocks of one language."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        # A group of its own: what a block has started in the background ends with it.
        self._process = subprocess.Popen(
            ending_with_us(command),
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: Queue[str] = Queue()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def start(self, file: Path) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{file}\n")
        self._process.stdin.flush()

    def run(self, file: Path) -> str:
        """What the file's commands print. Raises Failed when one of them fails, Empty when they take too long."""
        self.start(file)
        said: list[str] = []
        while (line := self._lines.get(timeout=PATIENCE_S)) != f"{DONE}\n":
            if not line:
                raise Failed(f"it ended with {self._process.wait()}:\n{''.join(said)}")
            said.append(line)
        return "".join(said)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listening.join()
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as said:
            for line in said:
                self._lines.put(line)
        self._lines.put("")


class Session:
    """Runs the blocks of one page."""

    def __init__(self, folder: Path, store: Store, server: Server) -> None:
        self.folder, self.store, self.server = folder, store, server
        host, port = server.address
        self._places = {
            "127.0.0.1:8048": f"{host}:{port}",
            "localhost:8048": f"{host}:{port}",
            "127.0.0.1:50053": store.grpc,
        }
        self._environment = environment_of(folder, store)
        self._interpreters: dict[str, Interpreter] = {}
        self._scripts = folder.parent / "blocks"
        self._scripts.mkdir()
        look_like_the_checkout(folder)

    def run(self, block: Block) -> None:
        """Raises Failed when the block does not do what the page says."""
        for name in filter(None, block.marks.get("needs", "").split(", ")):
            NEEDS[name](self)
        if file := block.marks.get("file"):
            self._save(self.folder / file, block.text)
        elif "background" in block.marks:
            self._started(str(block), block.language).start(self._script(block, script_of(block)))
        else:
            RUNS[block.language](self, block)

    def console(self, block: Block) -> None:
        for command, shown in typed(block.text):
            said = self._lasting("sh").run(self._script(block, as_typed(command, shown)))
            if len(shown) == 1 and not shown[0].startswith("{") and masked(shown[0]) != masked(said):
                raise Failed(f"{command}\nprints\n{said}\nand not\n{shown[0]}")

    def lasting(self, block: Block) -> None:
        self._lasting(block.language).run(self._script(block, block.text))

    def end(self) -> None:
        for interpreter in self._interpreters.values():
            interpreter.end()

    def _lasting(self, language: str) -> Interpreter:
        return self._interpreters.get(language) or self._started(language, language)

    def _started(self, name: str, language: str) -> Interpreter:
        command = [sys.executable, "-c", PYTHON] if language == "python" else ["bash", "-c", SHELL]
        self._interpreters[name] = Interpreter(command, self.folder, self._environment)
        return self._interpreters[name]

    def _script(self, block: Block, text: str) -> Path:
        script = self._scripts / f"{block.page.stem}-{block.line}-{len(list(self._scripts.iterdir()))}"
        self._save(script, text)
        return script

    def _save(self, file: Path, text: str) -> None:
        for written, here in self._places.items():
            text = text.replace(written, here)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def look_like_the_checkout(folder: Path) -> None:
    """So that commands find what they name, and leave nothing behind in the checkout."""
    folder.mkdir()
    for place in PROJECT.iterdir():
        if place.name not in (".git", ".venv", "var"):
            (folder / place.name).symlink_to(place)
    (folder / ".venv").symlink_to(sys.prefix)


def environment_of(folder: Path, store: Store) -> dict[str, str]:
    programs = folder.parent / "bin"
    programs.mkdir()
    for name, command in {"python": "", "python3": "", "taskstore": f" {PROJECT / 'manage.py'}"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n')
        (programs / name).chmod(0o755)
    return {
        **clean_environment(store.folder),
        "DATABASE_URL": store.database_url,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": f"{folder}:{PROJECT}",
        "TOKEN": store.token,
    }


def script_of(block: Block) -> str:
    """What a block begins that goes on."""
    return "\n".join(command for command, _ in typed(block.text)) if block.language == "console" else block.text


def typed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a session on a terminal, and the lines that it shows."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        found = re.match(r"(?:.*\\\n)*.*\n", part)
        assert found
        yield found[0].strip(), part[found.end() :].splitlines()


def as_typed(command: str, shown: list[str]) -> str:
    """The command with what is typed into it, and turned round when it has to fail."""
    if answer := next((line.partition("[y/N] ")[2] for line in shown if "[y/N] " in line), ""):
        command = f"{command} <<< {shlex.quote(answer)}"
    if any(line.startswith("taskstore: ") for line in shown):
        return f'if {command}; then echo "it should have failed"; exit 1; fi'
    return command


def masked(said: str) -> str:
    """What is the same each time."""
    said = re.sub(r"this machine \(\S+\)", "this machine", said)
    return " ".join(re.sub(r"\d+", "#", said).split())


# What is done with the blocks of each language.
RUNS: dict[str, Callable[[Session, Block], object]] = {
    "sh": Session.lasting,
    "bash": Session.lasting,
    "python": Session.lasting,
    "console": Session.console,
    "json": lambda _, block: json.loads(block.text),
    "toml": lambda _, block: tomllib.loads(block.text),
    "yaml": lambda _, block: list(yaml.safe_load_all(block.text)),
    "text": lambda *_: None,
}
