"""Text from outside, as the store can keep it: messages of exceptions, tracebacks, reasons."""

from __future__ import annotations

import re

LONGEST_ERROR = 2_000  # Characters of the error of a task, which lists show.
LONGEST_MESSAGE = 4_000  # Of an exception.


def clean(text: str, most: int = LONGEST_ERROR) -> str:
    r"""Return a text with at most `most` characters, valid and without NUL, which become \ud800 and \x00.

    Of a longer one both ends are kept: a traceback begins with the place and ends with the message.
    """
    text = text.encode(errors="backslashreplace").decode().replace("\0", r"\x00")
    if len(text) <= most:
        return text
    gap = f" ... ({len(text)} characters in all) ... "
    half = (most - len(gap)) // 2
    return text[:half] + gap + text[-half:]


# Control characters, and those that have no width or turn the direction of what follows.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def visible(text: str) -> str:
    """Return a text in which what nobody sees is shown, not obeyed: as its Unicode symbol, or like [U+202E]."""
    return UNSEEN.sub(_symbol_of, text)


def _symbol_of(found: re.Match[str]) -> str:
    sign = found[0]
    return chr(0x2400 + ord(sign)) if sign < " " else f"[U+{ord(sign):04X}]"
