"""Translate search terms to SQL conditions on the table `found`, and match values at a path in JSON data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import orjson

from taskstore.types.tasks import FAILED_FROM, Standing, State

from ...core.operations import GroupScope
from ...database import Dialect
from ...database.group_patterns import allowed_by
from ...database.rows import whole_data
from ...models import Batch
from .. import history
from .grammar import Bound, Key, Term

DATA = whole_data("found")

LARGE_NUMBER = re.compile(r"-?[0-9]{16,}")
BEFORE_VALUES = '" :,[\n\t\r'  # The characters that may precede a value in JSON,
AFTER_VALUES = '" ,]}\n\t\r'  # and those that may follow it.
LARGEST = 64 * 2**10  # Bytes of data that are parsed; larger data never matches.


class Condition(NamedTuple):
    sql: str
    parameters: tuple[Any, ...] = ()


EVERYTHING = Condition("TRUE")

# As in the indexes of errors: SQLite does not recognize `error <> ''` as the same condition. `id > 0` is always true
# and makes SQLite prefer these indexes to others that start with the group.
HAS_ERROR = "NOT (error = '') AND id > 0"
# The same for the indexes of failed tasks.
HAS_FAILED = f"standing >= {Standing.RETRYING:d} AND id > 0"
NOT_LEASED = "leased_since_ms = 0 AND standing = {0:d}"
IN_STATE = {
    State.READY: f"available_at_ms <= {{now_ms}} AND {NOT_LEASED.format(Standing.OPEN)}",
    State.CLAIMED: "available_at_ms > {now_ms} AND leased_since_ms > 0",
    State.EXPIRED: "available_at_ms <= {now_ms} AND leased_since_ms > 0",
    State.SCHEDULED: f"available_at_ms > {{now_ms}} AND {NOT_LEASED.format(Standing.OPEN)}",
    State.RETRYING: f"{NOT_LEASED.format(Standing.RETRYING)} AND {HAS_FAILED}",
    State.FAILED: f"{NOT_LEASED.format(Standing.FAILED)} AND {HAS_FAILED}",
    State.FINISHED: NOT_LEASED.format(Standing.FINISHED),
}


def condition_of(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    """Return the condition of a term. For `data.PATH` it only preselects rows, which `matches` then checks."""
    condition = BY_KEY[term.key](term, now_ms, dialect)
    return Condition(f"NOT ({condition.sql})", condition.parameters) if term.is_excluded else condition


def within(scope: GroupScope) -> Condition:
    """Return the condition that limits rows to the groups of the scope."""
    return Condition(*allowed_by(scope.patterns))


def first_added_up_to(newest: int) -> Condition:
    """Return the condition for tasks that existed, perhaps under another id, when this was the newest id."""
    return Condition("origin <= %s", (newest,))


def one_of(ids: Sequence[int]) -> Condition:
    """Return the condition for these ids, written out: a statement may have any number of them, unlike parameters."""
    if not ids:
        return Condition("FALSE")
    return Condition(f"id IN ({','.join(str(int(task_id)) for task_id in ids)})")


def every(conditions: Iterable[Condition]) -> Condition:
    """Join conditions with AND."""
    return _joined(" AND ", conditions, "TRUE")


def either(conditions: Iterable[Condition]) -> Condition:
    """Join conditions with OR."""
    return _joined(" OR ", conditions, "FALSE")


def _joined(word: str, conditions: Iterable[Condition], without: str) -> Condition:
    given = list(conditions)
    sql = word.join(f"({condition.sql})" for condition in given) or without
    return Condition(f"({sql})", tuple(value for condition in given for value in condition.parameters))


def _id(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    chain = history.chain_of(int(term.value))  # type: ignore[arg-type]
    return Condition("id = %s", (chain.living.id if chain and chain.living else 0,))


def _group(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition(*allowed_by((str(term.value),)))


def _state(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition(IN_STATE[State(str(term.value))].format(now_ms=now_ms))


def _owner(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    if isinstance(term.value, int):
        return Condition("owner = %s", (term.value,))
    return Condition("owner IN (SELECT id FROM tasks_app_client WHERE name = %s)", (term.value,))


def _error(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    escaped = str(term.value).replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return Condition(rf"{HAS_ERROR} AND error {dialect.like} %s ESCAPE '\'", (f"%{escaped.replace('*', '%')}%",))


def _label(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition(*dialect.bears(term.name, None if term.value is None else str(term.value)))


def _failed_from(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    pattern = str(term.value)
    if not pattern.endswith("*"):
        return Condition(*dialect.bears(FAILED_FROM, pattern))
    is_one = Condition(*dialect.bears(FAILED_FROM, None))
    group = dialect.by_code_point(dialect.label(FAILED_FROM))
    return every([is_one, Condition(*allowed_by((pattern,), group))])


def _unique(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition('"unique" = %s', (str(term.value),))


def _batch(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    # The first condition in the words of the index, which SQLite would not recognize else.
    within = [*Batch.objects.using(dialect.using).tree(cast(int, term.value)).values_list("pk", flat=True)]
    listed = dialect.is_listed.replace("id", '"batch"', 1)
    return Condition(f'NOT ("batch" = 0) AND {listed}', (dialect.list_of(within),))


def _data(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    if term.name and (term.is_excluded or not is_written_one_way(str(term.value))):
        return Condition("FALSE" if term.is_excluded else "TRUE")
    anywhere = _holding(str(term.value), dialect)
    if not term.name:
        return anywhere
    # The cheap condition first, then whether a JSON value may start there.
    return every([anywhere, either(_holding(before + str(term.value), dialect) for before in BEFORE_VALUES)])


def _holding(text: str, dialect: Dialect) -> Condition:
    return Condition(dialect.holds(DATA), (text.encode(),))


def _age(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    age = _bound(term)
    return Condition(f"made_at_ms {'>' if age.is_upper else '<'} %s", (now_ms - age.ms,))


def _available(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    time = _bound(term)
    at_ms = time.ms + (now_ms if time.is_relative else 0)
    return Condition(f"available_at_ms {'<' if time.is_upper else '>'} %s", (at_ms,))


def _bound(term: Term) -> Bound:
    assert isinstance(term.value, Bound)  # noqa: S101 - its key has no other type of value.
    return term.value


BY_KEY: dict[Key, Callable[[Term, int, Dialect], Condition]] = {
    Key.ID: _id,
    Key.GROUP: _group,
    Key.STATE: _state,
    Key.OWNER: _owner,
    Key.ERROR: _error,
    Key.LABEL: _label,
    Key.DATA: _data,
    Key.AGE: _age,
    Key.AVAILABLE: _available,
    Key.FAILED_FROM: _failed_from,
    Key.UNIQUE: _unique,
    Key.BATCH: _batch,
}


def matches(term: Term, data: bytes | None) -> bool:
    """Return whether the data matches a `data.PATH` term. None and data that is not JSON have no values."""
    return term.is_excluded != (data is not None and _has(term.name, str(term.value), data))


def is_written_one_way(value: str) -> bool:
    """Return whether JSON can only write the value literally, so that a search for it may precede the parsing."""
    return value.isascii() and value.replace("_", "").replace("-", "").isalnum()


def _has(path: str, value: str, data: bytes) -> bool:
    # Most data with these bytes has them within a longer value.
    if is_written_one_way(value) and not _whole_value(value).search(data):
        return False
    # Only the slower parser keeps large integers exact.
    parse = json.loads if LARGE_NUMBER.fullmatch(value) else orjson.loads
    try:
        found: Any = parse(data)
        for part in path.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
    # A list matches by any of its members. Strings compare by their text, other values as JSON.
    members = found if isinstance(found, list) else [found]
    return any((one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) == value for one in members)


@lru_cache
def _whole_value(value: str) -> re.Pattern[bytes]:
    before, after = (f"[{re.escape(ends)}]" for ends in (BEFORE_VALUES, AFTER_VALUES))
    return re.compile(f"(?:^|{before}){re.escape(value)}(?:{after}|$)".encode())
