"""Texts whose words the demo counts."""

import random
from pathlib import Path

WORDS = (
    "the",
    "quick",
    "brown",
    "fox",
    "doesn't",
    "don\N{RIGHT SINGLE QUOTATION MARK}t",
    "lazy",
    "dog",
    "ÜBER",
    "été",
    "слово",
)


def write_text(folder: Path, lines: int) -> Path:
    """A file of lines of nine words each."""
    chance = random.Random(1)
    file = folder / "text"
    file.write_text("\n".join(" ".join(chance.choices(WORDS, k=9)) + "." for _ in range(lines)))
    return file
