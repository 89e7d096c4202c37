"""Which values the store takes at all: pure. What makes no sense together is for `rules`.

Both databases must agree, so everything that one of them would refuse or change
silently (NUL in text, lone surrogates, integers beyond 64 bits) is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from taskstore.errors import Forbidden, LimitExceeded, by_field, refuse
from taskstore.types import sentences
from taskstore.types.batches import MOST_DEPTH, MOST_PLANNED, NewBatch, Plan
from taskstore.types.job_record import NO_STEP_BEFORE, lacks_step
from taskstore.types.scalars import (
    CLIENT_TEXT_LENGTH,
    INT64_MAX,
    INT64_MIN,
    LATEST_MS,
    MOST_CLAIMED,
    MOST_WAIT_MS,
    Limits,
)
from taskstore.types.sentences import group_name, is_utf8, text, unique_key
from taskstore.types.tasks import (
    FAILED_FROM,
    FIELDS,
    NOBODY,
    STORES_LABELS,
    Change,
    Kept,
    NewTask,
    Problem,
    TaskField,
    holds_results,
    ids_without_delete,
)

from .operations import Claim, Commit, GroupScope, Operation, Query, Update

Suspects = Sequence[tuple[str, NewTask | Change]]


def validate(operation: Operation, limits: Limits) -> None:
    """Raise InvalidInput that names every wrong field, or LimitExceeded when all that is wrong is too much.

    Raises Forbidden as `refuse_forbidden` does.
    """
    refuse_forbidden(operation)
    refuse_wrong(operation, limits)


def refuse_wrong_kinds(adds: Sequence[NewTask], updates: Sequence[Change] = ()) -> None:
    """Raise InvalidInput for what a program has passed instead of tasks, bytes and texts. Requests can't do that."""
    refuse(_wrong_kinds(adds, updates))


def _wrong_kinds(adds: Sequence[NewTask], updates: Sequence[Change]) -> Iterator[Problem]:
    for name, kind, items in (("adds", NewTask, adds), ("updates", Change, updates)):
        for place, item in enumerate(items):
            if not isinstance(item, kind):
                yield f"{name}[{place}]", f"must be a {kind.__name__}, not {item!r:.100}"
                continue
            data, labels = item.data, item.labels
            if not (isinstance(data, bytes) or (data is None and kind is Change)):
                yield f"{name}[{place}].data", f"must be bytes, not {type(data).__name__}: encode it"
            if labels and not all(isinstance(value, str) for value in labels.values()):
                yield f"{name}[{place}].labels", "must be texts by name"


def refuse_forbidden(operation: Operation) -> None:
    """Raise Forbidden when it is a claim of a group that may not be changed, or not for this owner."""
    if operation.scope.owners is not None and not _is_of_nobody(operation):
        refuse_owner(operation.scope, operation.owner)
    # The rules check the groups of commits: they see the tasks that a commit names.
    if isinstance(operation, Claim) and operation.scope.no_commands_because:
        for group in () if isinstance(operation, Query) and operation.only_reads else operation.groups:
            refuse_forbidden_group(operation.scope, group)


def refuse_wrong(operation: Operation, limits: Limits) -> None:
    """Raise InvalidInput that names every wrong field, or LimitExceeded when all that is wrong is too much."""
    suspects = [] if isinstance(operation, Claim) else list(_suspects(operation, limits))
    wrong = list(_wrong(operation, suspects, limits))
    too_much = list(_too_much(operation, suspects, limits))
    if wrong:
        refuse(wrong + too_much)
    too_much += _too_large_plans(operation, limits)  # Wrong texts can't be encoded, and so not measured.
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
        raise Forbidden(f"This token can't act for client {owner}, only for {allowed}.")


def _is_of_nobody(operation: Operation) -> bool:
    """Whether it is done for no client: an operator does it, it only reads, or it only adds tasks without an owner."""
    if isinstance(operation, Claim):
        return isinstance(operation, Query) and operation.only_reads
    is_new = operation.owner == NOBODY and not operation.changed_ids
    return operation.operator is not None or is_new


def _suspects(commit: Commit, limits: Limits) -> Iterator[tuple[str, NewTask | Change]]:
    """The paths and items that a quick look, which nearly every item passes, finds wrong or can't judge."""
    parts: list[tuple[str, Sequence[NewTask | Change]]] = [("adds", commit.adds), ("updates", commit.updates)]
    for kind, items in parts:
        for place, item in enumerate(items):
            if not _is_surely_right(item, limits):
                yield f"{kind}[{place}]", item
    if commit.batch:
        yield from ((path, add) for path, add in commit.batch.plan.planned if not _is_surely_right(add, limits))


def _is_surely_right(item: NewTask | Change, limits: Limits) -> bool:
    if item.unique is not None or item.group == "" or not INT64_MIN <= item.id <= INT64_MAX:
        return False
    if isinstance(item, NewTask) and (item.unique_for_ms or lacks_step(item) or not 0 <= item.batch <= INT64_MAX):
        return False
    for name, is_right, limit in QUICK_CHECKS:
        value = getattr(item, name)
        if value and (not is_right(value) or (limit and len(value) > getattr(limits, limit))):
            return False
    return True


def _too_much(operation: Operation, suspects: Suspects, limits: Limits) -> Iterator[Problem]:
    if isinstance(operation, Claim):
        if len(operation.depends) > limits.changes:
            yield "depends", sentences.at_most(limits.changes, "ids", len(operation.depends))
        if len(operation.groups) > limits.groups:
            yield "groups", sentences.at_most(limits.groups, "groups", len(operation.groups))
        return
    changes = operation.weight
    if isinstance(operation, Update):  # What a group or labels stand for is not counted.
        changes -= len(operation.matched)
    if changes > limits.changes:
        yield "", sentences.at_most(limits.changes, "adds, updates, deletes and depends together", changes)
    for path, item in suspects:
        for check in CHECKS:
            size = len(_own(check, item)) if check.limit else 0
            if size and size > (most := getattr(limits, check.limit)):
                size = len(item.labels.keys() - STORES_LABELS) if check.name == "labels" and item.labels else size
            if size and size > most:
                yield f"{path}.{check.wire}", sentences.at_most(most, check.unit, size)


def _too_large_plans(operation: Operation, limits: Limits) -> Iterator[Problem]:
    batch = operation.batch if isinstance(operation, Commit) else None
    if batch and batch.plan.size > limits.plan_bytes:
        [(path, _), *_] = batch.plan.parts
        yield path, f"{sentences.at_most(limits.plan_bytes, 'bytes', batch.plan.size)}, with data in Base64"


def _wrong(operation: Operation, suspects: Suspects, limits: Limits) -> Iterator[Problem]:
    yield from _integer("clientid", operation.owner)
    yield from task_ids("depends", operation.depends)
    if isinstance(operation, Claim):
        yield from _wrong_claim(operation, limits)
        return
    yield from task_ids("deletes", operation.deletes)
    if not isinstance(operation, Update):
        yield from ids_without_delete(operation.adds, operation.deletes)
    # Only the first add in the place of a task is its successor.
    firsts = {add.id: add for add in reversed(operation.adds)} if suspects else {}
    for path, item in suspects:
        is_new = isinstance(item, NewTask) and not (item.id and firsts.get(item.id) is item)
        yield from _wrong_item(path, item, is_new=is_new)
    if isinstance(operation.batch, NewBatch):
        yield from _wrong_batch(operation.batch, operation.adds)
    if operation.batch:
        yield from _wrong_plans(operation.batch.plan)


def _wrong_batch(batch: NewBatch, adds: Sequence[NewTask]) -> Iterator[Problem]:
    yield from text("name", batch.name, CLIENT_TEXT_LENGTH)
    if not 0 <= batch.parent <= INT64_MAX:
        yield "parent", sentences.between(0, INT64_MAX, batch.parent)
    if any(add.batch for add in adds):
        yield "adds", "must not name a batch: the tasks belong to the new one"
    if batch.plan.steps and (keyed := next((place for place, add in enumerate(adds) if add.unique), None)) is not None:
        yield f"adds[{keyed}].unique", "must be absent where steps follow, which would not wait for a duplicate"


def _wrong_plans(whole: Plan) -> Iterator[Problem]:
    waiting = [(name, plan, 1) for name, plan in whole.parts]
    if len(whole.steps) > MOST_PLANNED:
        yield "steps", sentences.at_most(MOST_PLANNED, "steps", len(whole.steps))
    while waiting:
        path, plan, depth = waiting.pop()
        if depth > MOST_DEPTH:
            yield path.partition(".")[0], f"must not nest deeper than {MOST_DEPTH} levels"
            return
        if plan.number > MOST_PLANNED:
            yield path, sentences.at_most(MOST_PLANNED, "tasks", plan.number)
        if len(plan.steps) > MOST_PLANNED:
            yield f"{path}.steps", sentences.at_most(MOST_PLANNED, "steps", len(plan.steps))
        waiting += [(f"{path}.{name}", part, depth + 1) for name, part in plan.parts]
    for path, add in whole.planned:
        if not add.group:
            yield f"{path}.group", sentences.NOT_EMPTY
        for name in ("unique", "batch", "id"):
            if getattr(add, name):
                yield f"{path}.{name}", "must be absent: a batch adds the task"


def _wrong_claim(claim: Claim, limits: Limits) -> Iterator[Problem]:
    if not claim.groups:
        yield "group", f"{sentences.REQUIRED}, unless groups names at least one group"
    # What is beyond the limit is refused for that.
    for place, group in enumerate(claim.groups[: limits.groups]):
        if group or not isinstance(claim, Query):
            yield from group_name(f"groups[{place}]" if claim.is_list or len(claim.groups) > 1 else "group", group)
    if not INT64_MIN <= claim.duration_ms <= LATEST_MS // 2:
        yield "duration", sentences.between(INT64_MIN, LATEST_MS // 2, claim.duration_ms)
    if isinstance(claim, Query):
        yield from _wrong_moment(claim)
    elif not 0 <= claim.wait_ms <= MOST_WAIT_MS:
        yield "wait", sentences.between(0, MOST_WAIT_MS, claim.wait_ms)
    if not 1 <= claim.limit <= MOST_CLAIMED:
        yield "limit", sentences.between(1, MOST_CLAIMED, claim.limit)


def _wrong_moment(query: Query) -> Iterator[Problem]:
    if not 0 <= query.at_ms <= LATEST_MS:
        yield "now", sentences.between(0, LATEST_MS, query.at_ms)
    elif query.at_ms + query.duration_ms > LATEST_MS:
        yield "duration", f"must be shorter: the lease must end before {LATEST_MS}"


def _wrong_item(path: str, item: NewTask | Change, *, is_new: bool) -> Iterator[Problem]:
    if isinstance(item, Change):
        yield from _integer(f"{path}.id", item.id)
        if item.group == "":  # Of an add: `rules` says that there is none.
            yield f"{path}.group", sentences.NOT_EMPTY
    for check in CHECKS:
        yield from check.problems(f"{path}.{check.wire}", _own(check, item))
    kept_ms = item.unique_for_ms if isinstance(item, NewTask) else 0
    if isinstance(item, NewTask) and lacks_step(item):
        yield f"{path}.data", NO_STEP_BEFORE
    yield from unique_key(f"{path}.", item.unique, kept_ms)
    if isinstance(item, NewTask) and not 0 <= item.batch <= INT64_MAX:
        yield f"{path}.batch", sentences.between(0, INT64_MAX, item.batch)
    if item.unique and is_new and item.group and holds_results(item.group):
        yield f"{path}.unique", f'must be absent: tasks of the group "{item.group}" have ended'
    if item.unique and kept_ms > 0 and item.id:
        yield f"{path}.unique_for", "must be absent for a successor, which keeps its key"


def _own(check: Check, item: NewTask | Change) -> Any:
    """The value of the field, without the label that only the rules write: what is sent of it is ignored."""
    value = getattr(item, check.name) or check.nothing
    if check.name == "labels" and FAILED_FROM in value:
        return {name: value[name] for name in value if name != FAILED_FROM}
    return value


def _integer(path: str, number: object) -> Iterator[Problem]:
    if not isinstance(number, int):
        hint = f": use int({number!r:.30})" if isinstance(number, str) and number.isdecimal() else ""
        yield path, f"must be an integer, not {number!r:.30}{hint}"
    elif not INT64_MIN <= number <= INT64_MAX:
        yield path, sentences.int64(number)


def task_ids(path: str, ids: Sequence[int]) -> Iterator[Problem]:
    """Those of the ids that no database could look up. Of the others each may be one that is not there."""
    # By their types first: NaN is neither less nor more than any of them.
    if ids and not ({*map(type, ids)} == {int} and min(ids) >= INT64_MIN and max(ids) <= INT64_MAX):
        for place, task_id in enumerate(ids):
            yield from _integer(f"{path}[{place}]", task_id)


class Check(NamedTuple):
    """What is asked of a field of an add or a change. What is absent or empty is right."""

    name: str  # Of the attribute.
    wire: str
    is_right: Callable[[Any], bool]  # Quick.
    problems: Callable[[str, Any], Iterator[Problem]]  # The same in words: none when it is right.
    nothing: Any
    limit: str  # The setting that bounds its size; empty: none does.
    unit: str


def check_of(field: TaskField) -> Check:
    """Return what the type of the field asks: made once, so that no type is looked into for each task."""
    kind, bounds = kind_of(field.type)
    if kind is int:
        least, most = bounds["ge"], bounds["le"]

        def is_right(value: Any) -> bool:
            return bool(least <= value <= most)

        def problems(path: str, value: Any) -> Iterator[Problem]:
            if not is_right(value):
                yield path, sentences.between(least, most, value)

    elif kind is str:
        longest = bounds.get("max_length")

        def is_right(value: Any) -> bool:
            return (longest is None or len(value) <= longest) and "\0" not in value and is_utf8(value)

        def problems(path: str, value: Any) -> Iterator[Problem]:
            return text(path, value, longest)

    elif kind is dict:
        [longest_name, longest_value] = [kind_of(part)[1]["max_length"] for part in get_args(field.type)]

        def is_right(value: Any) -> bool:
            return not any(problems("", value))

        def problems(path: str, value: Any) -> Iterator[Problem]:
            for name, each in value.items():
                yield from text(path, name, longest_name)
                yield from text(f"{path}.{name}", each, longest_value)

    else:

        def is_right(value: Any) -> bool:
            return True

        def problems(path: str, value: Any) -> Iterator[Problem]:
            return iter(())

    name = "timespec_ms" if field.name == "available_at_ms" else field.name
    unit = {str: "characters", bytes: "bytes", dict: "labels"}.get(kind, "")
    return Check(name, field.wire, is_right, problems, kind(), field.limit, unit)


def kind_of(type_: Any) -> tuple[Any, dict[str, Any]]:
    """A type without its limits, and these and its description by the names that msgspec has for them."""
    kind, *metas = get_args(type_) if get_origin(type_) is Annotated else [type_]
    names = ("ge", "le", "max_length", "description")
    return get_origin(kind) or kind, {
        name: limit for meta in metas for name in names if (limit := getattr(meta, name)) is not None
    }


CHECKS = [check_of(field) for field in FIELDS if field.kept is Kept.CONTENT or field.name == "available_at_ms"]
QUICK_CHECKS = [(check.name, check.is_right, check.limit) for check in CHECKS]
