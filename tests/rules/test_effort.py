"""How many steps a decision takes."""

from typing import Any

from tasks_app.core import rules
from tasks_app.core.operations import Commit, Effect, TaskRecord
from tasks_app.core.rules import World, decide
from tasks_app.core.schedules import fed_by
from taskstore.types.tasks import NewTask


class CountingDict(dict):
    """Counts how many of its values were looked at."""

    seen = 0

    def values(self):
        for value in super().values():
            CountingDict.seen += 1
            yield value


def steps_of_moves(count: int, monkeypatch) -> int:
    original = rules._successors_among
    monkeypatch.setattr(rules, "_successors_among", lambda *args: CountingDict(original(*args)))
    ids = range(1, count + 1)
    adds = tuple(NewTask(group="reports", id=task_id) for task_id in ids)
    named = {task_id: task_with(task_id) for task_id in ids}
    CountingDict.seen = 0
    [effect] = decide([Commit(owner=1, adds=adds, deletes=tuple(ids))], World(1_000, named, fed_by=fed_by))
    monkeypatch.undo()
    assert isinstance(effect, Effect)
    assert len(effect.removals) == len(effect.drafts) == count
    return CountingDict.seen


def task_with(task_id: int) -> TaskRecord:
    facts: dict[str, Any] = dict.fromkeys(TaskRecord._fields, 0)
    texts = {"group": "mail", "data": b"", "data_type": "", "error": "", "labels": {}}
    return TaskRecord(**{**facts, **texts, "id": task_id, "origin": task_id})


def test_ten_times_the_moves_take_ten_times_the_steps(monkeypatch):
    assert steps_of_moves(1_000, monkeypatch) == 1_000
    assert steps_of_moves(10_000, monkeypatch) == 10_000
