"""Text from outside, as the store can keep it: messages of exceptions, tracebacks, reasons."""

from __future__ import annotations

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
