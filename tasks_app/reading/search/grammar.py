"""Parse searches: `group:mail state:failed error:"timed out" -data.user:42`.

A task is found when it matches every term. Pure: does not use the database.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from taskstore.errors import InvalidInput
from taskstore.types import sentences
from taskstore.types.history import SEARCH_LENGTH
from taskstore.types.scalars import GROUP_LENGTH, INT64_MAX, INT64_MIN, KEY_LENGTH, LABEL_LENGTH, whole
from taskstore.types.sentences import is_utf8
from taskstore.types.tasks import State

MOST_TERMS = 20

QUOTED = r'"(?:[^"\\]|\\.)*"'
TOKEN = re.compile(rf'(?:{QUOTED}|[^\s"])+', re.DOTALL)
KEY = re.compile(rf'(-?)((?:{QUOTED}|[^\s":])+):(.*)', re.DOTALL)
LABEL = re.compile(rf'((?:{QUOTED}|[^":])+)(?::((?:{QUOTED}|[^"])*))?', re.DOTALL)
PLAIN = re.compile(r'[^\s":]+')  # Values that need no quotation marks.
DURATION = re.compile(r"([0-9]{1,9})(ms|s|min|h|d|w)")
UNITS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class Key(StrEnum):
    """The property of a task that a term compares."""

    ID = "id"
    GROUP = "group"
    STATE = "state"
    OWNER = "owner"
    ERROR = "error"
    LABEL = "label"
    DATA = "data"
    AGE = "age"
    AVAILABLE = "available"
    FAILED_FROM = "failed_from"
    UNIQUE = "unique"
    BATCH = "batch"


HINTS = {
    Key.ID: "any id of a task, current or earlier",
    Key.GROUP: "a name, or a prefix followed by *",
    Key.STATE: f"one of {', '.join(State)}",
    Key.OWNER: "a client id, or a worker's name",
    Key.ERROR: "part of the error; * matches any text",
    Key.LABEL: "label.NAME:VALUE, or label:NAME for any value",
    Key.DATA: "data:TEXT, or data.PATH:VALUE in JSON",
    Key.AGE: "> or < and a time span, as in >1h or <10min: time since the task got its current id, with every change",
    Key.AVAILABLE: "< or > and a time, as in <now, >now+1h or <2026-01-31T12:00",
    Key.FAILED_FROM: "the group in which a dead letter failed, or a prefix followed by *",
    Key.UNIQUE: "the key that the task holds",
    Key.BATCH: "the id of a batch",
}
OWN_FIELD_HINT = "must be NAME:VALUE, or NAME for any value; put text with a colon or quotation mark in quotes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A bound of an age or an available time."""

    ms: int
    is_upper: bool
    is_relative: bool = False  # Relative to now.


class Label(NamedTuple):
    """A label to search for; `value` None matches any value."""

    name: str
    value: str | None


Value = int | str | State | Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One condition. `name` is the name of a label, or a path in the data; empty for the whole data.

    `value` None matches any value of a label.
    """

    key: Key
    value: Value
    name: str = ""
    is_excluded: bool = False


def parse(text: str) -> list[Term]:
    """Return the terms of a search, none for a blank one.

    Raises InvalidInput about `q` that names each invalid part and the right form.
    """
    problems: list[str] = []
    terms = []
    for token in tokens_of(text):
        try:
            terms.append(_term(token))
        except ValueError as wrong:
            problems.append(f"{token}: {wrong}")
    if len(terms) > MOST_TERMS:
        problems.append(f"a search can have at most {MOST_TERMS} terms, not {len(terms)}")
    if problems:
        raise InvalidInput({"q": problems})
    return terms


def label(text: str, field: str) -> Label:
    """Parse a label field: `tier:gold`, or `tier` for any value.

    Names and values with a colon or quotation mark are quoted, as in a search. Raises InvalidInput about the field.
    """
    found = LABEL.fullmatch(text)
    if not found or found[2] == "" or "\0" in text or not is_utf8(text):
        raise InvalidInput({field: [OWN_FIELD_HINT]})
    try:
        return _label(found[1], found[2])
    except ValueError as wrong:
        raise InvalidInput({field: [str(wrong)]}) from None


def lone_id(terms: list[Term]) -> int | None:
    """Return the id when a search consists of just one; None otherwise."""
    match terms:
        case [Term(key=Key.ID, is_excluded=False, value=int(task_id))]:
            return task_id
    return None


def time_ms(text: str, now_ms: int) -> int | None:
    """Parse a time: now, now-1h, 2026-01-31T12:00 (UTC). Returns None for anything else."""
    relative_ms = _relative_ms(text)
    return _absolute_ms(text) if relative_ms is None else now_ms + relative_ms


def quoted(value: str) -> str:
    """Quote any value for a term."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def label_term(name: str, value: str | None = None) -> str:
    """Return the term for a label as a person would type it; None matches any value."""
    return f"label:{written(name)}" if value is None else f"label.{written(name)}:{written(value)}"


def written(value: str) -> str:
    """Write a value for a term, quoted only when necessary."""
    return value if PLAIN.fullmatch(value) else quoted(value)


def tokens_of(text: str) -> list[str]:
    """Split a search into its terms as written. Raises InvalidInput about `q`."""
    if len(text) > SEARCH_LENGTH:
        raise InvalidInput({"q": [f"a search can have at most {SEARCH_LENGTH} characters, not {len(text)}"]})
    if "\0" in text or not is_utf8(text):
        raise InvalidInput({"q": ["a search can't contain the NUL character or lone surrogates"]})
    if '"' in TOKEN.sub("", text):
        raise InvalidInput({"q": ['a quotation mark is not closed; to search for one, write \\" within quotes']})
    is_id = re.fullmatch(r"[0-9\s]*[0-9][0-9\s]*", text)  # Pages print ids with spaces.
    return ["".join(text.split())] if is_id else TOKEN.findall(text)


def _term(token: str) -> Term:
    """Parse one term. Raises ValueError that says what would be right."""
    if number := re.fullmatch(r"(-?)([0-9]+)", token):
        return Term(key=Key.ID, value=_id(number[2]), is_excluded=bool(number[1]))
    found = KEY.fullmatch(token)
    if not found:
        bare = token.removeprefix("-")
        raise ValueError(f"specify where to search: error:{bare}, data:{bare} or group:{bare}; a bare number is an id")
    excluded, key, value = found[1], _unquoted(found[2]), _unquoted(found[3])
    word, dot, name = key.partition(".")
    if word not in {*Key} or (dot and word not in (Key.LABEL, Key.DATA)):
        near = get_close_matches(word.lower(), list(Key), n=1)
        hint = f"did you mean {near[0]}?" if near and near[0] != word else f"use one of {', '.join(Key)}"
        raise ValueError(f"{key} is not a search key; {hint}")
    if word == Key.LABEL:
        asked = (found[2].partition(".")[2], found[3]) if dot else (found[3], None)
        return Term(key=Key.LABEL, **_label(*asked)._asdict(), is_excluded=bool(excluded))
    if not value or (dot and not name):
        raise ValueError(f"must be {HINTS[Key(word)]}")
    return Term(key=Key(word), name=name, value=READERS[Key(word)](value), is_excluded=bool(excluded))


def _label(name: str, value: str | None) -> Label:
    """Build a label from its written parts. Both may be `""`: an empty name or value is valid."""
    if not name or value == "":
        raise ValueError(f"must be {HINTS[Key.LABEL]}")
    asked = Label(_unquoted(name), None if value is None else _unquoted(value))
    if (longest := max(len(asked.name), len(asked.value or ""))) > LABEL_LENGTH:
        raise ValueError(sentences.at_most(LABEL_LENGTH, "characters", longest))
    return asked


def _unquoted(text: str) -> str:
    return re.sub(QUOTED, lambda quote: re.sub(r"\\(.)", r"\1", quote[0][1:-1], flags=re.DOTALL), text, flags=re.DOTALL)


def _id(text: str) -> int:
    if (task_id := whole(text, 1)) is None:
        raise ValueError(sentences.between(1, INT64_MAX))
    return task_id


def _group(text: str) -> str:
    if len(text) > GROUP_LENGTH + 1:
        raise ValueError(sentences.at_most(GROUP_LENGTH, "characters", len(text)))
    return text


def _state(text: str) -> State:
    try:
        return State(text.lower())
    except ValueError:
        raise ValueError(sentences.one_of(State, text)) from None


def _owner(text: str) -> int | str:
    number = whole(text, INT64_MIN)
    return text if number is None else number


def _age(text: str) -> Bound:
    duration = DURATION.fullmatch(text[1:])
    if text[0] not in "<>":
        raise ValueError("must begin with > for older or < for newer, as in age:>1h or age:<10min")
    if not duration:
        units = ", ".join(UNITS_MS)
        raise ValueError(f"must be a number and one of {units}, as in age:>1h{sentences.but_not_text(text[1:])}")
    return Bound(ms=int(duration[1]) * UNITS_MS[duration[2]], is_upper=text[0] == "<")


def _available(text: str) -> Bound:
    relative_ms, absolute_ms = _relative_ms(text[1:]), _absolute_ms(text[1:])
    ms = absolute_ms if relative_ms is None else relative_ms
    if text[0] not in "<>":
        raise ValueError("must begin with < for before or > for after, as in available:<now or available:>now+1h")
    if ms is None:
        raise ValueError(
            f"must be now, now+1h (or {', '.join(UNITS_MS)}),"
            f" or a UTC date or time such as 2026-01-31T12:00{sentences.but_not_text(text[1:])}"
        )
    return Bound(ms=ms, is_upper=text[0] == "<", is_relative=relative_ms is not None)


def _relative_ms(text: str) -> int | None:
    """Parse now, now-1h or now+30min. Returns None for anything else."""
    if text == "now":
        return 0
    duration = DURATION.fullmatch(text[4:])
    if not duration or text[:4] not in ("now-", "now+"):
        return None
    return int(f"{text[3]}{duration[1]}") * UNITS_MS[duration[2]]


def _absolute_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None


def _unique(text: str) -> str:
    if not 0 < len(text) <= KEY_LENGTH:
        raise ValueError(f"must be a key of 1 to {KEY_LENGTH} characters")
    return text


READERS: dict[Key, Callable[[str], Value]] = {
    Key.ID: _id,
    Key.GROUP: _group,
    Key.STATE: _state,
    Key.OWNER: _owner,
    Key.ERROR: str,
    Key.DATA: str,
    Key.AGE: _age,
    Key.AVAILABLE: _available,
    Key.FAILED_FROM: _group,
    Key.UNIQUE: _unique,
    Key.BATCH: _id,
}
