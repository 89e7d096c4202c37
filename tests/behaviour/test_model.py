"""The whole store against the plain model: sequences of operations on the real database, and faults that must show."""

from functools import partial

import pytest
from django.db import IntegrityError
from hypothesis import given

from tasks_app import database
from tasks_app.core.operations import Claim, Duplicate, Prohibited, TaskRecord
from tasks_app.database import Undecided, postgresql, sqlite
from tasks_app.database.claim_pools import named_keys
from tasks_app.models import EndedTask, Task
from taskstore.errors import CommitRefused, Forbidden, StoreBusy
from taskstore.types.tasks import Ending, NewTask, Refusal
from tests.rules.harness import Disagreement, agree, without_texts
from tests.rules.model import Ended, NaiveStore
from tests.rules.sequences import SEQUENCES, START_MS, batches, resolved

from ..emptying import empty
from ..examples import examples, of_sequences
from .databases import only_sqlite
from .people import ANN


def compare(sequence, clock):
    """Run the sequence through the store and through the model; raise Disagreement where they differ."""
    model = begin(clock)
    for step in sequence:
        let_pass(step.elapsed_ms or 0, model, clock)
        operation = resolved(step.operation, sorted(model.tasks), model.last_id)
        try:
            answer: list[TaskRecord] | Refusal = database.run(operation)
        except CommitRefused as refused:
            answer = refused.refusal
        except Forbidden:
            answer = Prohibited(forbidden=("",))
        agree(operation, unnumbered(answer), unnumbered(shown(model.perform(operation), operation)))
    agree_in_the_end(model)


def compare_batches(sequence, clock, served):
    """The same with the writer, which does several operations in one transaction."""
    model = begin(clock)
    may_skip = False  # Tasks of groups that the client may not touch, and keys that are taken, may use up ids in vain.
    for elapsed_ms, operations in batches(sequence):
        let_pass(elapsed_ms, model, clock)
        living = sorted(model.tasks)
        batch = [resolved(operation, living, model.last_id) for operation in operations]
        connection = served.writer._connection
        done = served.run(connection.run(database.transact(batch, connection.dialect)))
        for operation, decision in zip(batch, done.decisions, strict=True):
            outcome = decision.refusal if isinstance(decision, CommitRefused) else decision
            outcome = Prohibited(forbidden=("",)) if isinstance(outcome, Forbidden) else outcome
            may_skip |= operation.scope.patterns is not None or bool(named_keys([operation]))
            if may_skip and isinstance(outcome, list):
                new = [task.id for task in outcome if not isinstance(task, Duplicate)]
                model.last_id = max(model.last_id, min(new, default=0) - 1)
            if isinstance(operation, Claim) and not isinstance(outcome, Refusal):
                agree_on_claim(operation, outcome, model)
            elif outcome is not Undecided.CONTENDED or not named_keys([operation]):  # Else the next batch decides it.
                agree(operation, unnumbered(outcome), unnumbered(shown(model.perform(operation), operation)))
    agree_in_the_end(model)


def agree_on_claim(claim, outcome, model):
    """Neighbours may have taken some of what was locked for it: then it gets fewer tasks, or looks again."""
    available = [task for task in model.tasks.values() if task.group in claim.reachable]
    available = [task for task in available if task.available_at_ms <= model.now_ms]
    if not outcome:
        agree("what is left to claim", available, [])
    elif outcome is not Undecided.CONTENDED:
        taken = {task.origin for task in outcome}
        chosen = [task.id for task in available if task.origin in taken]
        agree(claim, numberless(outcome), numberless(shown(model.claim(claim, chosen), claim)))


def begin(clock):
    """An empty store but for one task, and the model of it."""
    empty()
    clock.set(START_MS)
    [first] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    return NaiveStore(START_MS, first.id, first.made_by_commit, tasks={first.id: record(first)})


def let_pass(elapsed_ms, model, clock):
    model.now_ms += elapsed_ms
    clock.set(model.now_ms)


def agree_in_the_end(model):
    agree("the tasks", numberless(map(record, Task.objects.all())), numberless(model.tasks.values()))
    agree("the trail", set(map(ended, EndedTask.objects.all())), set(model.trail))


def shown(answer, operation):
    """The model's answer for a client that does not learn of other groups that a task failed in them."""
    if not isinstance(answer, list):
        return answer
    for place, task in enumerate(answer):
        if "failed_from" in task.labels and not operation.scope.allows(task.labels["failed_from"]):
            labels = {name: value for name, value in task.labels.items() if name != "failed_from"}
            answer[place] = task._replace(labels=labels)
    return answer


def unnumbered(answer):
    """The answer without the numbers of commits: a refused operation uses one up."""
    answer = without_texts(answer)
    return numberless(answer) if isinstance(answer, list) else answer


def numberless(tasks):
    return [task._replace(made_by_commit=0) for task in sorted(tasks)]


def record(task: Task) -> TaskRecord:
    values = [getattr(task, name) for name in TaskRecord._fields]
    return TaskRecord._make(bytes(value) if isinstance(value, memoryview) else value for value in values)


def ended(row: EndedTask) -> Ended:
    return Ended(id=row.id, ending=Ending(row.ending), successor=row.successor, by=row.ended_by)


def check_sequences(most, *fixtures, compare=compare):
    @of_sequences(most)
    @given(SEQUENCES)
    def check_one(sequence):
        compare(sequence, *fixtures)

    check_one()


def test_the_store_agrees_with_the_model(clock):
    check_sequences(examples(15), clock)


def test_a_store_that_does_many_things_at_once_agrees_with_the_model(clock, served):
    check_sequences(examples(15), clock, served, compare=compare_batches)


def forget(what):
    """A fault: that part of what is to be written is forgotten, in the write of either database."""

    def break_it(monkeypatch):
        kind = type(database.dialect_of("default"))
        write = kind.write

        def forgetful(dialect, written):
            getattr(written, what).clear()
            return (yield from write(dialect, written))

        monkeypatch.setattr(kind, "write", forgetful)

    return break_it


def refuse_nothing_that_is_owned(monkeypatch):
    monkeypatch.setattr("tasks_app.core.rules._owned_by_others", lambda commit, world: ())


def mix_up_the_data(monkeypatch):
    for module in (postgresql, sqlite):
        row_of = module.row_of
        mixed = partial(lambda row_of, task: row_of(task._replace(data=task.data[::-1] + b"?")), row_of)
        monkeypatch.setattr(module, "row_of", mixed)


FAULTS = {
    "removed tasks stay": forget("removed"),
    "the trail is not written": forget("ended"),
    "owners are ignored": refuse_nothing_that_is_owned,
    "data is written wrong": mix_up_the_data,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_the_model_finds_a_fault_in_the_store(clock, monkeypatch, fault):
    fault(monkeypatch)
    # A task that ends twice is noticed by the table of the trail already; one that stays though it was
    # taken looks to later claims as if somebody held it.
    with pytest.raises((Disagreement, IntegrityError, StoreBusy)):
        check_sequences(50, clock)


@only_sqlite
def test_the_model_finds_ids_that_are_used_again(clock, monkeypatch):
    """As SQLite counts by itself: from the largest id that is there."""

    class Forgetful(dict[str, int]):
        def __getitem__(self, using):
            return 0

    monkeypatch.setattr(database.SQLite, "_given_out", Forgetful())
    monkeypatch.setattr(database.SQLite, "newest_id", "SELECT coalesce(max(id), 0) FROM tasks_app_task")
    with pytest.raises(Disagreement):
        check_sequences(50, clock)
