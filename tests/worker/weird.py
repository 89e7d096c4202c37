"""What the workers of test_texts.py run, in processes without Django."""

import sys
from datetime import timedelta

from taskstore import Discard, Retry, Save, job

TEXTS = {
    "NUL": "before\0after",
    "surrogate": "lone \ud800",
    "long": "first " + "x" * 1_000_000 + " last",
    "bidi": "\u202egnp.exe",
    "ANSI": "\x1b[31mred\x1b[0m\r",
    "lines": "first\nsecond\n\n" * 30_000,
    "nothing": "",
}
BYTES = b"\xff\xfe\0\n"


@job(max_attempts=2, backoff=timedelta(0))
def weird(name, argument=""):
    print(TEXTS[name])
    sys.stdout.buffer.write(BYTES)
    raise ValueError(TEXTS[name])


@job
def echo(text):
    return text


def raise_ValueError(task):  # noqa: N802 - named after what they raise
    raise ValueError(TEXTS[task.data.decode()])


def raise_Save(task):  # noqa: N802
    raise Save(error=TEXTS[task.data.decode()])


def raise_Retry(task):  # noqa: N802
    raise Retry(timedelta(0), TEXTS[task.data.decode()])


def raise_Discard(task):  # noqa: N802
    raise Discard(TEXTS[task.data.decode()])
