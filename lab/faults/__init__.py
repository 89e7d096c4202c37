"""Seeded faults: changes that break the product, each with the tests that must notice it.

Run `python3 manage.py faults` whenever tests are removed. The faults are in the TOML files beside this module, one file
for each part of the product.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from lab.testing import PROJECT, CannotTry
from lab.testing.environment import clean_environment

FOLDER = Path(__file__).parent
PATIENCE_S = 600
AT_ONCE = 2
# Not ERROR: a test that could not even begin has noticed nothing.
VERDICT = re.compile(r"^FAILED (\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change of one file. `tests`: files and folders of tests, of which at least one test must fail."""

    part: str
    breaks: str  # The effect, as a sentence.
    file: str
    old: str  # Occurs once in the file.
    new: str
    tests: list[str]
    database: str = "sqlite"

    def broken(self, text: str) -> str:
        """Return the content of the file with the fault. Raises CannotTry if the file no longer has the place."""
        if text.count(self.old) != 1:
            raise CannotTry(
                f'lab/faults/{self.part}.toml: change `old` and `new` of the fault "{self.breaks}": '
                f"its `old` must occur once in {self.file}, not {text.count(self.old)} times:\n{self.old}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """`noticed_by`: the first test that failed; empty if all passed. `output`: what pytest printed."""

    fault: Fault
    noticed_by: str
    output: str


def all_faults() -> list[Fault]:
    """Return the faults of all parts. Raises CannotTry if the place of one no longer exists."""
    found = [
        Fault(part=file.stem, **fields)
        for file in sorted(FOLDER.glob("*.toml"))
        for fields in tomllib.loads(file.read_text())["fault"]
    ]
    for fault in found:
        fault.broken((PROJECT / fault.file).read_text())
    return found


def try_all(faults: list[Fault], urls: Mapping[str, str], folder: Path) -> Iterator[Tried]:
    """Seed the faults one by one in copies of the project, and run their tests. Several run in parallel."""
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(min(AT_ONCE, len(faults))):
        copies.put(copied(folder / f"copy{number}"))

    def try_one(fault: Fault) -> Tried:
        copy = copies.get()
        try:
            with seeded(fault, copy):
                return tried(fault, copy, urls[fault.database])
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(try_one, faults)


def copied(to: Path) -> Path:
    """Copy the project without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, to / name)
    return to


@contextmanager
def seeded(fault: Fault, copy: Path) -> Iterator[None]:
    file = copy / fault.file
    text = file.read_text()
    file.write_text(fault.broken(text))
    try:
        yield
    finally:
        file.write_text(text)


def tried(fault: Fault, copy: Path, url: str) -> Tried:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *fault.tests]
    data = copy.with_name(f"{copy.name}-data")
    data.mkdir(exist_ok=True)
    environment = {**clean_environment(data), "DATABASE_URL": url}
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as hung:
        return Tried(fault=fault, noticed_by="", output=f"the tests took longer than {hung.timeout:g} s")
    found = VERDICT.search(done.stdout)
    return Tried(fault=fault, noticed_by=found[1] if found and done.returncode == 1 else "", output=done.stdout)
