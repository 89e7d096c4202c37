"""What the pages that are made have in common."""

from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `manage.py docs reference`; a change belongs into the code that it is made from. -->\n"


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    line = "|".join(["", *["---"] * (head.count("|") - 1), ""])
    return "\n".join([head, line, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def cell(text: str) -> str:
    return sentence(text).replace("|", "\\|")


def sentence(text: str) -> str:
    return " ".join(text.split())
