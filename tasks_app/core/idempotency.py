"""Answers that are kept under a key, so that a request whose answer was lost can be sent again: pure.

What is kept is what the first one answered, without the ids: those are kept beside it, because
the database gives them in the same statement.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from taskstore.types.tasks import Refusal

from .operations import Prohibited, TaskRecord


def text_of(answer: Sequence[TaskRecord] | Refusal) -> str:
    """The answer as text; the tasks are drafts."""
    kept = {"refusal": msgspec.structs.asdict(answer)} if isinstance(answer, Refusal) else {"drafts": answer}
    return msgspec.json.encode(kept).decode()  # Records become lists, their data becomes base64.


def answer_in(text: str, ids: Sequence[int]) -> list[TaskRecord] | Refusal:
    """The answer that the text holds, with the ids that the drafts were given."""
    kept = msgspec.json.decode(text)
    if "refusal" in kept:
        kind = Prohibited if kept["refusal"].get("forbidden") else Refusal
        return msgspec.convert(kept["refusal"], kind)
    return [_task(values, task_id) for values, task_id in zip(kept["drafts"], ids, strict=True)]


def _task(values: Sequence[object], task_id: int) -> TaskRecord:
    draft = TaskRecord(*values)  # type: ignore[arg-type]  # An older version kept fewer: the last ones have defaults.
    return draft._replace(id=task_id, origin=draft.origin or task_id, data=base64.b64decode(draft.data))
