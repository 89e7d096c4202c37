"""Answers that are kept under a key, so that a request whose answer was lost can be sent again: pure.

What is kept is what the first one answered, without the ids: those are kept beside it, because
the database gives them in the same statement.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import msgspec

from taskstore.types.tasks import Refusal

from .operations import Prohibited, TaskRecord

DATA = TaskRecord._fields.index("data")


def text_of(answer: Sequence[TaskRecord] | Refusal) -> str:
    """The answer as text; the tasks are drafts."""
    if isinstance(answer, Refusal):
        return json.dumps({"refusal": msgspec.structs.asdict(answer)})
    return json.dumps({"drafts": [_in_text(draft) for draft in answer]})


def answer_in(text: str, ids: Sequence[int]) -> list[TaskRecord] | Refusal:
    """The answer that the text holds, with the ids that the drafts were given."""
    kept = json.loads(text)
    if "refusal" in kept:
        kind = Prohibited if kept["refusal"].get("forbidden") else Refusal
        return msgspec.convert(kept["refusal"], kind)
    return [_task(values, task_id) for values, task_id in zip(kept["drafts"], ids, strict=True)]


def _in_text(draft: TaskRecord) -> list[object]:
    return list(draft._replace(data=base64.b64encode(draft.data).decode()))  # type: ignore[arg-type]


def _task(values: Sequence[object], task_id: int) -> TaskRecord:
    draft = TaskRecord(*values)  # type: ignore[arg-type]  # An older version kept fewer: the last ones have defaults.
    return draft._replace(id=task_id, origin=draft.origin or task_id, data=base64.b64decode(draft.data))
