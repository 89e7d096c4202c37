"""Commits as the server takes them (contract.md section 3)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import CommitRefused, InvalidInput
from ..operations import Change, NewTask, Refusal
from .answers import Task


def commit_on_the_wire(
    owner: int, adds: Iterable[NewTask], updates: Iterable[Change], deletes: Iterable[int], depends: Iterable[int]
) -> dict[str, Any]:
    return {
        "clientid": owner,
        "adds": [add_on_the_wire(add) for add in adds],
        "updates": [change_on_the_wire(change, place) for place, change in enumerate(updates)],
        "deletes": list(deletes),
        "depends": list(depends),
    }


def add_on_the_wire(add: NewTask) -> dict[str, Any]:
    said = {"id": add.id, "timespec": add.timespec_ms, "error": add.error, "priority": add.priority}
    said["labels"] = dict(add.labels)
    return {"group": add.group, **_filled(said), **_data(add)}


def change_on_the_wire(change: Change, place: int) -> dict[str, Any]:
    _refuse_what_rest_has_not(change, place)
    said: dict[str, Any] = {"id": change.id, **_filled({"timespec": change.timespec_ms, "release": change.release})}
    if change.labels is not None:
        said["labels"] = dict(change.labels)
    if change.priority is not None:
        said["priority"] = change.priority
    if change.keep_data:
        return {**said, "keep": True}
    return {**said, **_filled({"error": change.error}), **_data(change)}


def _refuse_what_rest_has_not(change: Change, place: int) -> None:
    if change.group is not None:
        raise InvalidInput({f"updates[{place}].group": ["None: `move` is how a task gets into another group"]})
    if change.keep_data != change.keep_error:
        raise InvalidInput({f"updates[{place}].keep_error": ["the same as keep_data: both stay, or both are given"]})


def _filled(said: Mapping[str, Any]) -> dict[str, Any]:
    """Without what the server takes as given anyway."""
    return {name: value for name, value in said.items() if value}


def _data(item: NewTask | Change) -> dict[str, Any]:
    said = {"data_type": item.data_type} if item.data_type else {}
    data: bytes | str = item.data
    if isinstance(data, str):
        return {**said, "data": data}
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data is bytes or text, not {type(data).__name__}: json.dumps makes text of a value")
    try:
        return {**said, "data": bytes(data).decode()}
    except UnicodeDecodeError:
        return {**said, "data_base64": base64.b64encode(data).decode()}


def tasks_of(outcome: Mapping[str, Any]) -> list[Task]:
    """The new tasks of a commit or a claim. Raises CommitRefused."""
    if outcome["error"]:
        raise CommitRefused(Refusal(**{name: tuple(which) for name, which in outcome["error"].items()}))
    return [Task.of(tree) for tree in outcome["tasks"]]
