"""Tasks out of NDJSON, one a line, as an export has them or as somebody wrote them: all are added, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from taskstore.errors import InvalidInput, LimitExceeded, refuse
from taskstore.types import sentences
from taskstore.types.tasks import FAILED_FROM, NewTask, Problem

from ..core.operations import Commit
from ..core.validation import group_name
from ..managers import limits
from ..wire import strict_json
from ..wire.decoding import value_of
from ..wire.size import refuse_many
from ..wire.tasks import Add

MOST_NAMED = 20  # Wrong lines: more would not be read.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # Some editors begin a file with it.


def read(body: bytes, group: str = "") -> tuple[Add, ...]:
    """The tasks of the lines; blank ones are passed over. `group`: where all of them go, whatever they say.

    Raises InvalidInput that names up to 20 wrong lines, each with its fields: `{"line 3: priority": ["an
    integer from -100 to 100, not text"]}`; LimitExceeded when there are more lines than a commit takes.
    """
    if group:
        refuse(group_name("group", group))
    lines = numbered_lines(body)
    adds: list[Add] = []
    problems: dict[str, list[str]] = {}
    wrong = 0
    for number, line in lines:
        try:
            adds.append(_add(line, group))
        except InvalidInput as refused:
            problems |= of_line(number, refused)
            wrong += 1
            if wrong == MOST_NAMED:
                break
    if problems:
        raise InvalidInput(problems)
    return tuple(adds)


def numbered_lines(body: bytes) -> list[tuple[int, bytes]]:
    """Each line with its number, but for blank ones. Raises InvalidInput or LimitExceeded about how many they are."""
    refuse_many(body, limits().values)
    if (ends := body.count(b"\n")) > limits().values:  # Blank ones, or there would be too many values.
        raise LimitExceeded({"lines": [sentences.at_most(limits().values, "lines", ends)]})
    lines = enumerate(body.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1)
    found = [(number, line) for number, line in lines if line.strip()]
    if not found:
        raise InvalidInput({"lines": ["must have at least one task, one per line"]})
    if len(found) > limits().changes:
        raise LimitExceeded({"lines": [sentences.at_most(limits().changes, "tasks", len(found))]})
    return found


def _add(line: bytes, group: str) -> Add:
    tree = strict_json.read(line)
    if not isinstance(tree, dict):
        raise strict_json.wrong('must be an object, such as {"group": "mail", "data": "..."}')
    if group:
        tree["group"] = group
    add = value_of(tree, Add)
    refuse([*add.every_problem(), *_wrong_source(add)])
    return add


def within_scope(commit: Commit) -> Commit:
    """Without the sources of dead letters that whoever imports them could not have put there.

    Otherwise a requeue by somebody else would bring a task into a group that its sender may not touch.
    """
    scope = commit.scope

    def is_foreign(add: NewTask) -> bool:
        return bool(
            add.failed_from and not (scope.allows(add.failed_from) and not scope.why_forbidden(add.failed_from))
        )

    if not any(map(is_foreign, commit.adds)):
        return commit
    return replace(commit, adds=tuple(replace(add, failed_from="") if is_foreign(add) else add for add in commit.adds))


def _wrong_source(add: Add) -> Iterator[Problem]:
    """What no dead letter can have failed in."""
    if source := (add.labels or {}).get(FAILED_FROM):
        yield from group_name(f"labels.{FAILED_FROM}", source)


def of_line(number: int, refused: InvalidInput) -> dict[str, list[str]]:
    """What is wrong, with the number of the line in front."""
    return {
        f"line {number}" if path == "body" else f"line {number}: {path}": [
            text.replace(" starting at: line 1", ": line 1").replace(": line 1 column ", " at column ")
            for text in texts  # Of JSON's reader, to which it is line 1.
        ]
        for path, texts in refused.fields.items()
    }
