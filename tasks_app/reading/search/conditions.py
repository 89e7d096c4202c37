"""Terms in the words of the database. `found` is the table whose rows they look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from taskstore.types.tasks import FAILED_FROM, State

from ...core.operations import GroupScope
from ...database import Dialect
from ...database.rows import whole_data
from ...managers import BEYOND_EVERY_NAME
from .. import history
from .grammar import Bound, Key, Term
from .paths import BEFORE_VALUES, is_written_one_way

DATA = whole_data("found")


class Condition(NamedTuple):
    sql: str
    parameters: tuple[Any, ...] = ()


EVERYTHING = Condition("TRUE")

# In the words of the indexes of failed tasks: SQLite does not see that `error <> ''` means the same. Every id is above
# zero; saying so makes SQLite prefer these indexes to others that begin with the group.
HAS_FAILED = "NOT (error = '') AND id > 0"
IN_STATE = {
    State.READY: "available_at_ms <= {now_ms} AND leased_since_ms = 0",
    State.CLAIMED: "available_at_ms > {now_ms} AND leased_since_ms > 0",
    State.EXPIRED: "available_at_ms <= {now_ms} AND leased_since_ms > 0",
    State.SCHEDULED: "available_at_ms > {now_ms} AND leased_since_ms = 0",
    State.FAILED: HAS_FAILED,
}


def condition_of(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    """What the term asks of a row; what `data.PATH` asks is asked in paths.py again."""
    condition = BY_KEY[term.key](term, now_ms, dialect)
    return Condition(f"NOT ({condition.sql})", condition.parameters) if term.is_excluded else condition


def within(scope: GroupScope) -> Condition:
    """The groups that the scope allows."""
    if scope.patterns is None:
        return EVERYTHING
    return either(_named(pattern) for pattern in scope.patterns)


def first_added_up_to(newest: int) -> Condition:
    """Tasks that were there, perhaps under another id, when this was the newest id."""
    return Condition("origin <= %s", (newest,))


def one_of(ids: Sequence[int]) -> Condition:
    """One statement takes any number of them on both databases: as text, not as parameters."""
    if not ids:
        return Condition("FALSE")
    return Condition(f"id IN ({','.join(str(int(task_id)) for task_id in ids)})")


def every(conditions: Iterable[Condition]) -> Condition:
    """All of them are met."""
    return _joined(" AND ", conditions, "TRUE")


def either(conditions: Iterable[Condition]) -> Condition:
    """At least one is met."""
    return _joined(" OR ", conditions, "FALSE")


def _joined(word: str, conditions: Iterable[Condition], without: str) -> Condition:
    given = list(conditions)
    sql = word.join(f"({condition.sql})" for condition in given) or without
    return Condition(f"({sql})", tuple(value for condition in given for value in condition.parameters))


def _id(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    """The living task of the chain that the id belongs to."""
    chain = history.chain_of(int(term.value))  # type: ignore[arg-type]
    return Condition("id = %s", (chain.living.id if chain and chain.living else 0,))


def _group(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return _named(str(term.value))


def _named(pattern: str) -> Condition:
    """A range, not LIKE: on SQLite that takes capitals for small letters."""
    if not pattern.endswith("*"):
        return Condition('"group" = %s', (pattern,))
    return Condition('"group" >= %s AND "group" < %s', _ends_of(pattern))


def _ends_of(pattern: str) -> tuple[str, str]:
    """Between which lie the names that begin with what is before the star."""
    return pattern[:-1], pattern[:-1] + BEYOND_EVERY_NAME


def _state(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition(IN_STATE[State(str(term.value))].format(now_ms=now_ms))


def _owner(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    if isinstance(term.value, int):
        return Condition("owner = %s", (term.value,))
    return Condition("owner IN (SELECT id FROM tasks_app_client WHERE name = %s)", (term.value,))


def _error(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition(rf"{HAS_FAILED} AND error {dialect.like} %s ESCAPE '\'", (_pattern(str(term.value)),))


def _pattern(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped.replace('*', '%')}%"


def _label(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    return Condition(*dialect.bears(term.name, None if term.value is None else str(term.value)))


def _failed_from(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    pattern = str(term.value)
    if not pattern.endswith("*"):
        return Condition(*dialect.bears(FAILED_FROM, pattern))
    is_one = Condition(*dialect.bears(FAILED_FROM, None))
    group = dialect.by_code_point(dialect.label(FAILED_FROM))
    return every([is_one, Condition(f"{group} >= %s AND {group} < %s", _ends_of(pattern))])


def _data(term: Term, now_ms: int, dialect: Dialect) -> Condition:
    if term.name and (term.is_excluded or not is_written_one_way(str(term.value))):
        return Condition("FALSE" if term.is_excluded else "TRUE")
    anywhere = _holding(str(term.value), dialect)
    if not term.name:
        return anywhere
    # First the cheap question; then whether a value of JSON may begin there.
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
    assert isinstance(term.value, Bound)  # noqa: S101 - its key has no other value.
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
}
