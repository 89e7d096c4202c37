"""The pages of the documentation, and the blocks of commands and code in them.

How to write a page
-------------------

Every ```` ``` ```` block of README.md, CONTRIBUTING.md and docs/*.md names its language, and is tried by
test_pages.py: the blocks of a page in their order, beside a server of its own with an empty store.

* `sh`, `bash`: run by one shell for the whole page, which stops at the first command that fails. What one block
  exports the next one has. `TOKEN` is a token that may do everything, the folder looks like the checkout, and
  `taskstore`, `python3`, `.venv/bin/python` are there. The addresses of the page, `http://127.0.0.1:8048` and
  `127.0.0.1:50053`, are replaced by those of the server.
* `console`: lines with `$ ` are commands, the others what they print. A command that prints `taskstore: ...` has to
  fail, all others must not; `[y/N] y` is typed. What a command prints in a single line is compared, but for digits;
  JSON is not.
* `python`: run by one interpreter for the whole page. What a block imports the next one has.
* `json`, `toml`, `yaml`: read. `text`: nothing is done with it.

A comment in front of a block says what is special about it:

* `<!-- not run: REASON -->`, with one of the REASONS below. A new reason has to be added there, and reviewed.
* `<!-- file: worker.py -->`: the reader saves the block under this name, and so does the test. Any language.
* `<!-- background -->`: the block runs while the rest of the page goes on, and is ended with it: a worker, say.
* `<!-- needs: NAME -->`: what the page takes for granted, one of the functions of needs.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.testing import PROJECT

# Why a block can't be run as it stands; what can be run otherwise has its test elsewhere.
REASONS = {
    "serves until it is stopped": "the page's server is there already",
    "takes minutes": "the test suite, the benchmark and their like",
    "changes the system": "installs packages, services or users",
    "needs a system of yours": "a cluster, a proxy, a registry, a certificate",
    "fetches from elsewhere": "needs the network",
    "asks a person": "on a terminal, as in tests/client/command_line/test_changing.py",
    "shows a store at work": "needs what was done before; each command line is parsed by test_documented.py",
    "a part of your program": "names what only the reader has",
    "in a project of its own": "tests/foreign/test_guide.py does it all, in a Django project",
}

MARK = re.compile(r"^<!-- (?P<mark>not run|file|needs|background)(?:: (?P<what>.+))? -->$")
FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,})(?P<language>[^`]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: Path
    line: int  # Of its first line, from 1.
    language: str
    text: str
    marks: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    @property
    def is_run(self) -> bool:
        return "not run" not in self.marks


def pages() -> list[Path]:
    """Those that people read; the pictures and examples beside them have tests of their own."""
    front = (PROJECT / name for name in ("README.md", "CONTRIBUTING.md"))
    return [*filter(Path.exists, front), *sorted((PROJECT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    marks: dict[str, str] = {}
    lines = enumerate(page.read_text().splitlines(), 1)
    for number, line in lines:
        if found := MARK.match(line):
            marks[found["mark"]] = found["what"] or ""
        elif opened := FENCE.match(line):
            text = "".join(body_of(opened["fence"], lines))
            language = opened["language"].strip()
            yield Block(page=page, line=number + 1, language=language, text=text, marks=marks)
            marks = {}
        elif line:
            assert not marks, f"{page}:{number}: a mark has to stand right before a block"


def body_of(fence: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == fence:
            return
        yield f"{line}\n"
    raise AssertionError("a block has no end")
