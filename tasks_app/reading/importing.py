"""Import tasks from NDJSON, one per line, as exported or handwritten: all of them or none."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from taskstore.errors import InvalidInput, LimitExceeded, refuse
from taskstore.types import sentences
from taskstore.types.requests import Add
from taskstore.types.sentences import group_name
from taskstore.types.tasks import FAILED_FROM, NewTask

from ..core.operations import Commit
from ..managers import limits
from ..wire import strict_json
from ..wire.requests import every_problem
from ..wire.strict_json import refuse_many, value_of

MOST_NAMED = 20  # Wrong lines that an error lists.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # Some editors start a file with it.


def read(body: bytes, group: str = "") -> tuple[Add, ...]:
    """Return the tasks of the lines that are not blank. `group` replaces the group of every task.

    Raises InvalidInput that names up to 20 wrong lines, each with its fields: `{"line 3: priority": ["an
    integer from -100 to 100, not text"]}`; LimitExceeded when there are more lines than a commit may add.
    """
    if group:
        refuse(group_name("group", group))

    def add_of(line: bytes) -> Add:
        tree = strict_json.read(line)
        if not isinstance(tree, dict):
            raise strict_json.wrong('must be an object, such as {"group": "mail", "data": "..."}')
        if group:
            tree["group"] = group
            tree.pop("unique_group", None)  # The tasks of a file are new in this group, and so are their keys.
        add = value_of(tree, Add)
        source = (add.labels or {}).get(FAILED_FROM)
        others = {f"labels.{FAILED_FROM}": source, "unique_group": add.unique_group}
        refuse(
            [*every_problem(add), *(each for path, name in others.items() if name for each in group_name(path, name))]
        )
        return add

    read: list[Add] = []
    problems: dict[str, list[str]] = {}
    wrong = 0
    for number, line in _numbered_lines(body):
        try:
            read.append(add_of(line))
        except InvalidInput as refused:
            problems |= _of_line(number, refused)
            wrong += 1
            if wrong == MOST_NAMED:
                break
    if problems:
        raise InvalidInput(problems)
    return tuple(read)


def _numbered_lines(body: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers.

    Raises InvalidInput when there are none, LimitExceeded when there are too many.
    """
    refuse_many(body, limits().values)
    if (ends := body.count(b"\n")) > limits().values:  # Blank lines, or refuse_many would have raised.
        raise LimitExceeded({"lines": [sentences.at_most(limits().values, "lines", ends)]})
    lines = enumerate(body.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1)
    found = [(number, line) for number, line in lines if line.strip()]
    if not found:
        raise InvalidInput({"lines": ["must have at least one task, one per line"]})
    if len(found) > limits().changes:
        raise LimitExceeded({"lines": [sentences.at_most(limits().changes, "tasks", len(found))]})
    return found


def within_scope(commit: Commit) -> Commit:
    """Remove the sources of dead letters, and the groups of keys, that are out of the importer's scope.

    Otherwise, a requeue by somebody else could put a task into a group that the importer may not change, and a key
    could be taken there.
    """
    scope = commit.scope

    def reachable(group: str) -> str:
        return "" if scope.why_out_of_reach(group) else group

    def within(add: NewTask) -> NewTask:
        if not (add.failed_from or add.unique_group):
            return add
        return replace(add, failed_from=reachable(add.failed_from), unique_group=reachable(add.unique_group))

    return structs.replace(commit, adds=tuple(map(within, commit.adds)))


def _of_line(number: int, refused: InvalidInput) -> dict[str, list[str]]:
    """Prefix the errors with the number of the line."""
    return {
        f"line {number}" if path == "body" else f"line {number}: {path}": [
            text.replace(" starting at: line 1", ": line 1").replace(": line 1 column ", " at column ")
            for text in texts  # The JSON reader calls every line line 1.
        ]
        for path, texts in refused.fields.items()
    }
