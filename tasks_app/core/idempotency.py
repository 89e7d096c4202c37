"""Answers that are kept under a key, so that a request whose answer was lost can be sent again: pure.

What is kept is what the first one answered, without the ids: those are kept beside it, because
the database gives them in the same statement.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import cast

import msgspec

from taskstore.types.tasks import Refusal

from .operations import Duplicate, Prohibited, TaskRecord, in_places


def text_of(answer: Sequence[TaskRecord] | Refusal, places: Sequence[int | Duplicate] | None = None) -> str:
    """The answer as text; the tasks are drafts, in these places of the answer (see Effect.places)."""
    if isinstance(answer, Refusal):
        kept: dict[str, object] = {"refusal": msgspec.structs.asdict(answer)}
    else:
        kept = {"drafts": answer}  # Records become lists, their data becomes base64.
    if places is not None:
        kept["places"] = [
            {"holder": place, "ending": place.ending} if isinstance(place, Duplicate) else place for place in places
        ]
    return msgspec.json.encode(kept).decode()


def answer_in(text: str, ids: Sequence[int]) -> list[TaskRecord] | Refusal:
    """The answer that the text holds, with the ids that the drafts were given."""
    kept = msgspec.json.decode(text)
    if "refusal" in kept:
        kind = Prohibited if kept["refusal"].get("forbidden") else Refusal
        return msgspec.convert(kept["refusal"], kind)
    tasks = [_task(values, task_id) for values, task_id in zip(kept["drafts"], ids, strict=True)]
    if "places" not in kept:
        return tasks
    return in_places(tasks, [place if isinstance(place, int) else _holder(**place) for place in kept["places"]])


def _holder(holder: Sequence[object], ending: str) -> Duplicate:
    duplicate = Duplicate.of(_task(holder, cast("int", holder[0])))
    duplicate.ending = ending
    return duplicate


def _task(values: Sequence[object], task_id: int) -> TaskRecord:
    draft = TaskRecord(*values)  # type: ignore[arg-type]  # An older version kept fewer: the last ones have defaults.
    return draft._replace(id=task_id, origin=draft.origin or task_id, data=base64.b64decode(draft.data))
