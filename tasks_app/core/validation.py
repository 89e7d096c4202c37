"""Which values the store takes at all: pure. What makes no sense together is for `rules`.

Both databases must agree, so everything that one of them would refuse or change
silently (NUL in text, lone surrogates, integers beyond 64 bits) is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from taskstore.errors import Forbidden, LimitExceeded, by_field, refuse
from taskstore.types.tasks import FAILED_FROM, NOBODY, Change, NewTask, Problem, ids_without_delete

from .operations import Claim, Commit, GroupScope, Operation, Query, Update

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LATEST_MS = 253_402_300_799_999  # The end of the year 9999: what every client's calendar can show.
MOST_PRIORITY = 100
GROUP_LENGTH = 255
TYPE_LENGTH = 1_000
LABEL_LENGTH = 255
MOST_CLAIMED = 1_000
MOST_WAIT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the store takes at once (contract.md section 8). Each is a setting."""

    data_bytes: int = 10 * 2**20
    changes: int = 10_000  # Adds, updates, deletes and depends of a commit together.
    labels: int = 64
    groups: int = 1_000  # Of a claim.
    values: int = 1_000_000  # In all objects and lists of a body of JSON together.
    error_length: int = 100_000


def validate(operation: Operation, limits: Limits) -> None:
    """Raise InvalidInput that names every wrong field, or LimitExceeded when all that is wrong is too much.

    Raises Forbidden when a group that it names may not be changed, or not for this owner.
    """
    refuse_forbidden(operation)
    refuse_wrong(operation, limits)


def refuse_forbidden(operation: Operation) -> None:
    """Raise Forbidden when a group that it names may not be changed, or not for this owner."""
    if operation.scope.owners is not None and not _is_of_nobody(operation):
        refuse_owner(operation.scope, operation.owner)
    if operation.scope.no_commands_because:
        for group in _named_groups(operation):
            refuse_forbidden_group(operation.scope, group)


def refuse_wrong(operation: Operation, limits: Limits) -> None:
    """Raise InvalidInput that names every wrong field, or LimitExceeded when all that is wrong is too much."""
    too_much = list(_too_much(operation, limits))
    wrong = list(_wrong(operation, limits))
    if wrong:
        refuse(wrong + too_much)
    if too_much:
        raise LimitExceeded(by_field(too_much))


def refuse_forbidden_group(scope: GroupScope, group: str) -> None:
    """Raise Forbidden when tasks of the group may not be changed."""
    if why := scope.why_forbidden(group):
        raise Forbidden(why)


def refuse_owner(scope: GroupScope, owner: int) -> None:
    """Raise Forbidden when nothing may be done for this client."""
    if scope.owners is not None and owner not in scope.owners:
        allowed = ", ".join(map(str, scope.owners))
        raise Forbidden(f"This token may not act for the client {owner}: it is for {allowed} only.")


def _is_of_nobody(operation: Operation) -> bool:
    """Whether it is done for no client: an operator does it, it only reads, or it only adds tasks without an owner."""
    if isinstance(operation, Claim):
        return isinstance(operation, Query) and operation.only_reads
    is_new = operation.owner == NOBODY and not operation.changed_ids
    return operation.operator is not None or is_new


def _named_groups(operation: Operation) -> Iterator[str]:
    """Those that it changes; those of the tasks that it names are seen by `rules`."""
    if isinstance(operation, Claim):
        yield from () if isinstance(operation, Query) and operation.only_reads else operation.groups
        return
    for _, item in _items(operation):
        yield item.group or ""


def _too_much(operation: Operation, limits: Limits) -> Iterator[Problem]:
    if isinstance(operation, Claim):
        if len(operation.depends) > limits.changes:
            yield (
                "depends",
                f"at most {limits.changes} depends a claim, not {len(operation.depends)}",
            )
        if len(operation.groups) > limits.groups:
            yield "groups", f"at most {limits.groups} groups a claim, not {len(operation.groups)}"
        return
    changes = len(operation.adds) + len(operation.changed_ids) + len(operation.depends)
    if isinstance(operation, Update):  # What a group or labels stand for is not counted.
        changes -= len(operation.matched)
    if changes > limits.changes:
        yield (
            "",
            f"at most {limits.changes} adds, updates, deletes and depends together a commit, not {changes}",
        )
    for path, item in _items(operation):
        if len(item.data or b"") > limits.data_bytes:
            yield (
                f"{path}.data",
                f"at most {limits.data_bytes} bytes a task, not {len(item.data or b'')}",
            )
        labels = len(_own_labels(item))
        if labels > limits.labels:
            yield f"{path}.labels", f"at most {limits.labels} labels a task, not {labels}"
        if len(item.error or "") > limits.error_length:
            yield (
                f"{path}.error",
                f"at most {limits.error_length} characters, not {len(item.error or '')}",
            )


def _wrong(operation: Operation, limits: Limits) -> Iterator[Problem]:
    yield from _integer("clientid", operation.owner)
    yield from task_ids("depends", operation.depends)
    if isinstance(operation, Claim):
        yield from _wrong_claim(operation, limits)
        return
    yield from task_ids("deletes", operation.deletes)
    if not isinstance(operation, Update):
        yield from ids_without_delete(operation.adds, operation.deletes)
    for path, item in _items(operation):
        yield from _wrong_item(path, item)


def _wrong_claim(claim: Claim, limits: Limits) -> Iterator[Problem]:
    if not claim.groups:
        yield "group", "the name of a group"
    # What is beyond the limit is refused for that.
    for place, group in enumerate(claim.groups[: limits.groups]):
        if group or not isinstance(claim, Query):
            yield from group_name("group" if len(claim.groups) == 1 else f"groups[{place}]", group)
    if not INT64_MIN <= claim.duration_ms <= LATEST_MS // 2:
        yield "duration", f"a number of milliseconds, at most {LATEST_MS // 2}"
    if isinstance(claim, Query):
        yield from _wrong_moment(claim)
    elif not 0 <= claim.wait_ms <= MOST_WAIT_MS:
        yield "wait", f"from 0 to {MOST_WAIT_MS} milliseconds, not {claim.wait_ms}"
    if not 1 <= claim.limit <= MOST_CLAIMED:
        yield "limit", f"from 1 to {MOST_CLAIMED}, not {claim.limit}"


def _wrong_moment(query: Query) -> Iterator[Problem]:
    if not 0 <= query.at_ms <= LATEST_MS:
        yield "now", f"milliseconds: 0 (now), or a time up to {LATEST_MS}"
    elif query.at_ms + query.duration_ms > LATEST_MS:
        yield "duration", f"so long that the lease ends at {LATEST_MS} at the latest"


def _items(commit: Commit) -> Iterator[tuple[str, NewTask | Change]]:
    for place, add in enumerate(commit.adds):
        yield f"adds[{place}]", add
    for place, change in enumerate(commit.updates):
        yield f"updates[{place}]", change


def _wrong_item(path: str, item: NewTask | Change) -> Iterator[Problem]:
    if isinstance(item, Change):
        yield from _integer(f"{path}.id", item.id)
    if item.group:  # Empty: `rules` says that there is none.
        yield from group_name(f"{path}.group", item.group)
    elif isinstance(item, Change) and item.group is not None:
        yield f"{path}.group", "the name of a group, not empty"
    if not -(LATEST_MS // 2) <= item.timespec_ms <= LATEST_MS:
        yield (
            f"{path}.timespec",
            f"milliseconds: 0 (now), a time up to {LATEST_MS}, or minus a delay of up to {LATEST_MS // 2}",
        )
    if item.priority is not None and not -MOST_PRIORITY <= item.priority <= MOST_PRIORITY:
        yield (
            f"{path}.priority",
            f"from -{MOST_PRIORITY} to {MOST_PRIORITY}, not {item.priority}",
        )
    yield from text(f"{path}.error", item.error or "")
    yield from text(f"{path}.data_type", item.data_type or "", TYPE_LENGTH)
    for name, value in _own_labels(item).items():
        yield from text(f"{path}.labels", name, LABEL_LENGTH)
        yield from text(f"{path}.labels.{name}", value, LABEL_LENGTH)


def _own_labels(item: NewTask | Change) -> Mapping[str, str]:
    """Without the one that only the rules write: what is sent of it is ignored."""
    labels = item.labels or {}
    return {name: labels[name] for name in labels if name != FAILED_FROM} if FAILED_FROM in labels else labels


def group_name(path: str, name: str) -> Iterator[Problem]:
    """What is wrong with a group's name."""
    if not name:
        yield path, "the name of a group, not empty"
    yield from text(path, name, GROUP_LENGTH)


def text(path: str, value: str, longest: int | None = None) -> Iterator[Problem]:
    """What is wrong with a text, at most `longest` characters long."""
    if longest is not None and len(value) > longest:
        yield path, f"at most {longest} characters, not {len(value)}"
    if "\0" in value:
        yield path, "text without the NUL character"
    if not is_utf8(value):
        yield path, "text that can be written as UTF-8: it holds a lone surrogate"


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(path: str, number: int) -> Iterator[Problem]:
    if not INT64_MIN <= number <= INT64_MAX:
        yield path, "an integer of 64 bits"


def task_ids(path: str, ids: Iterable[int]) -> Iterator[Problem]:
    """Those of the ids that no database could look up. Of the others each may be one that is not there."""
    for place, task_id in enumerate(ids):
        yield from _integer(f"{path}[{place}]", task_id)
