"""Answers that are kept under a key, so that a request whose answer was lost can be sent again: pure.

What is kept is what the first one answered, without the ids, which are kept beside it. Of a claim only those are kept:
its tasks are there for as long as its client holds them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from taskstore.types.tasks import Refusal, json_size

from .operations import Apart, Duplicate, Prohibited, TaskRecord, in_places
from .room import Told


def text_of(
    answer: Sequence[TaskRecord] | Refusal,
    places: Sequence[int | Duplicate] | None = None,
    *,
    is_claim: bool = False,
    is_truncated: bool = False,
) -> str:
    """The answer as text; the tasks are drafts, in these places of the answer (see Effect.places)."""
    if isinstance(answer, Refusal):
        kept: dict[str, object] = {"refusal": msgspec.structs.asdict(answer)}
    elif is_claim:
        kept = {"claimed": True}
    else:
        kept = {"drafts": list(map(_kept, answer))}  # Records become lists, their data becomes base64.
    if places is not None:
        kept["places"] = [
            {"holder": _kept(place), "ending": place.ending} if isinstance(place, Duplicate) else place
            for place in places
        ]
    if is_truncated:
        kept["is_truncated"] = True
    return msgspec.json.encode(kept).decode()


class Claimed(NamedTuple):
    """What is kept of a claim."""

    ids: Sequence[int]
    is_truncated: bool

    def answer(self, found: Mapping[int, TaskRecord]) -> list[TaskRecord]:
        """The tasks that are there still. `found`: by their ids."""
        tasks, gone = [found[task_id] for task_id in self.ids if task_id in found], {*self.ids} - found.keys()
        return (
            Told(tasks, None, is_truncated=self.is_truncated, gone=sorted(gone)) if gone or self.is_truncated else tasks
        )


Answer = list[TaskRecord] | Refusal | Claimed


def answer_in(text: str, ids: Sequence[int]) -> Answer:
    """The answer that the text holds, with the ids that the drafts were given."""
    kept = msgspec.json.decode(text)
    if "claimed" in kept:
        return Claimed(ids, "is_truncated" in kept)
    if "refusal" in kept:
        kind = Prohibited if kept["refusal"].get("forbidden") else Refusal
        return msgspec.convert(kept["refusal"], kind)
    tasks = [_task(values, task_id) for values, task_id in zip(kept["drafts"], ids, strict=True)]
    if "is_truncated" in kept:
        return Told(tasks, None, is_truncated=True)
    if "places" not in kept:
        return tasks
    return in_places(tasks, [place if isinstance(place, int) else _holder(**place) for place in kept["places"]])


def _kept(task: TaskRecord) -> TaskRecord:
    """The task without data that is kept apart, or is about to be."""
    if not task.payload or isinstance(task.data, Apart):
        return task
    return task._replace(data=Apart(task.payload, json_size(task.data)))


def _holder(holder: Sequence[object], ending: str) -> Duplicate:
    duplicate = Duplicate.of(_task(holder, cast("int", holder[0])))
    duplicate.ending = ending
    return duplicate


def _task(values: Sequence[object], task_id: int) -> TaskRecord:
    draft = TaskRecord(*values)  # type: ignore[arg-type]  # An older version kept fewer: the last ones have defaults.
    data: bytes | Apart
    if isinstance(kept := cast("str | dict[str, int]", draft.data), str):
        data = base64.b64decode(kept)
    else:
        data = Apart(kept["payload"] if kept["payload"] > 0 else task_id, kept["size"])
        draft = draft._replace(payload=data.payload)
    return draft._replace(id=task_id, origin=draft.origin or task_id, data=data)
