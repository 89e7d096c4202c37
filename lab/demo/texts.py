"""Text to count: the user's files, else what every Debian or Python installation has."""

from __future__ import annotations

import pydoc_data.topics
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

ENOUGH = 2**20  # Characters.
LICENCES = Path("/usr/share/common-licenses")  # Debian's.


def text_of(files: Sequence[Path]) -> str:
    """The text of the files one after the other. Raises OSError where one can't be read."""
    return "\n".join(file.read_text(errors="replace") for file in files)


def sample_text() -> str:
    """At least a megabyte, mostly English: licences, Python's help on its own topics, modules of its library."""
    pieces = []
    size = 0
    for piece in _pieces():
        pieces.append(piece)
        size += len(piece)
        if size >= ENOUGH:
            break
    return "\n".join(pieces)


def _pieces() -> Iterator[str]:
    # Regular files only: the links beside them are the same licences under other names.
    licences = [file for file in sorted(LICENCES.glob("*")) if not file.is_symlink()]
    yield from (file.read_text(errors="replace") for file in licences)
    yield from pydoc_data.topics.topics.values()
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    yield from (module.read_text(errors="replace") for module in modules)
