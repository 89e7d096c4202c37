"""The rules against a plain model of the contract: sequences of operations, and broken rules that must show."""

from collections import Counter
from copy import deepcopy

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace

from tasks_app.core import rules
from tasks_app.core.operations import Commit, GroupScope, HeldKey, Prohibited, TaskRecord
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import Ending, Refusal

from ..examples import examples, of_sequences
from .harness import Disagreement, TableInMemory, check
from .sequences import SEQUENCES, START_MS, batches, resolved

pytestmark = pytest.mark.once

EVERY_KIND_OF_ANSWER = {
    *("done", "duplicate", "nothing to claim", "prohibited"),
    *("changes", "deletes", "depends", "owned", "bugs"),
}
# Requeued is what the console calls a change of its own.
EVERY_ENDING = set(Ending) - {Ending.REQUEUED, Ending.CANCELLED}


def check_sequences(most: int) -> Counter[str]:
    """Check so many sequences of 30 operations, and count the kinds of answers."""
    seen: Counter[str] = Counter()

    # Without hypothesis' own shrinking: see `shortened`.
    @of_sequences(most)
    @given(SEQUENCES)
    def check_one(sequence):
        check(sequence, seen)

    check_one()
    return seen


def test_the_rules_agree_with_the_model():
    seen = check_sequences(examples(600))
    assert set(seen) == EVERY_KIND_OF_ANSWER | EVERY_ENDING


@settings(
    max_examples=examples(100), phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(SEQUENCES)
def test_what_is_deleted_at_once_is_what_the_general_way_deletes(sequence):
    decide = rules.decide

    def decide_both_ways(operations, world):
        same_world = deepcopy(world)
        answers = decide(operations, world)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rules, "_effect_of_deletions", lambda *_: None)
            assert decide(operations, same_world) == answers
        return answers

    table, now_ms = TableInMemory(), START_MS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "decide", decide_both_ways)
        for elapsed_ms, operations in batches(sequence):
            now_ms += elapsed_ms
            table.run([resolved(operation, sorted(table.tasks), table.last_id) for operation in operations], now_ms)


@pytest.mark.parametrize("fed", ["mail", "commands/new"])
@pytest.mark.parametrize("group", ["mail", "commands/new", SCHEDULES])
def test_deletions_without_the_right_to_commands_are_the_same_both_ways(group, fed):
    scope = GroupScope(no_commands_because="this needs a token with the scope commands")
    data = msgspec.json.encode({"task": {"group": fed}})
    task = TaskRecord._make(0 for _ in TaskRecord._fields)._replace(id=4, group=group, data=data)

    def decided():
        return rules.decide([Commit(owner=1, deletes=(4,), scope=scope)], rules.World(1, {4: task}))

    at_once = decided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "_effect_of_deletions", lambda *_: None)
        assert decided() == at_once
    is_forbidden = "commands/new" in (group, fed if group == SCHEDULES else "")
    assert isinstance(at_once[0], Prohibited) == is_forbidden


def test_what_a_claim_leases_is_a_successor_with_nothing_else_changed():
    task = TaskRecord._make(f"value of {name}" for name in TaskRecord._fields)._replace(claims=3)
    lease = {"available_at_ms": 2_000, "owner": 7, "claims": 4, "leased_since_ms": 1_000}
    assert rules._leased(task, 1_000, 2_000, 7) == rules._successor(task, 1_000, **lease)


def wrong_successor(**wrong):
    """A `_successor` that gets fields wrong: each is a value, or a function of the task that is replaced."""
    right = rules._successor

    def successor(task, now_ms, **changed):
        values = {name: value(task) if callable(value) else value for name, value in wrong.items()}
        return right(task, now_ms, **{**changed, **values})

    return successor


def first_reason_only(operation, world, refusal_of=rules.refusal_of):
    refusal = refusal_of(operation, world)
    if refusal is None:
        return None
    name = next(name for name in ("changes", "deletes", "depends", "owned", "bugs") if getattr(refusal, name))
    return Refusal(**{name: getattr(refusal, name)})


def last_add_succeeds(adds, deletes):
    return {add.id: place for place, add in enumerate(adds) if add.id in deletes}


def found_in_every_group(self, task_id, scope):
    return None if task_id in self._gone else self._named.get(task_id)


def everything_is_claimable(world, claim):
    candidates = [task for group in claim.reachable for task in world._candidates.get(group, ())]
    return [task for task in candidates if task.id not in world._gone][: claim.limit]


def with_old_leases(effect):
    begins = [removal.task.leased_since_ms for removal in effect.removals]
    drafts = zip(effect.drafts, begins, strict=True)
    return effect._replace(
        drafts=tuple(draft._replace(leased_since_ms=begin or draft.leased_since_ms) for draft, begin in drafts)
    )


FAULTS = {
    "the owner is ignored": ("_owned_by_others", lambda commit, world: ()),
    "a task stays with its owner for ever": (
        "_owned_by_others",
        lambda commit, world: tuple(
            task_id
            for task_id in dict.fromkeys(commit.changed_ids)
            if (task := world.find(task_id, commit.scope)) and task.owner != commit.owner and not commit.operator
        ),
    ),
    "operators can't override owners": (
        "_owned_by_others",
        lambda commit, world, right=rules._owned_by_others: right(replace(commit, operator=None), world),
    ),
    "a key is never taken": ("World.holder_of", lambda self, key, freed: None),
    "adds count before deletes": (
        "World.holder_of",
        lambda self, key, freed, right=rules.World.holder_of: right(self, key, {}),
    ),
    "a kept key is free at once": (
        "World.holder_of",
        lambda self, key, freed, right=rules.World.holder_of: (
            None if isinstance(held := right(self, key, freed), HeldKey) else held
        ),
    ),
    "a successor loses its key": ("_key_in", lambda group, task: ""),
    "the available time is ignored": ("World.claimable", everything_is_claimable),
    "what is gone is found again": ("World.take", lambda self, removals: None),
    "a claim may take from any group": ("Claim.reachable", property(lambda claim: claim.groups)),
    "groups out of the scope are found": ("World.find", found_in_every_group),
    "what is missing is skipped, the rest is done": ("_missing", lambda ids, scope, world: ()),
    "only the first reason is given": ("refusal_of", first_reason_only),
    "what makes no sense is done": ("_bugs", lambda commit: ()),
    "a delay counts backwards": ("available_at", lambda timespec_ms, now_ms: timespec_ms or now_ms),
    "the origin is lost": ("_successor", wrong_successor(origin=0)),
    "the claims are not counted": (
        "_leased",
        lambda task, *lease, right=rules._leased: right(task, *lease)._replace(claims=task.claims),
    ),
    "the labels are lost": ("_successor", wrong_successor(labels={})),
    "the owner stays when a task is given back": ("_successor", wrong_successor(owner=lambda task: task.owner)),
    "the age starts anew": ("_successor", wrong_successor(created_at_ms=0)),
    "every update leases": ("_successor", wrong_successor(leased_since_ms=lambda task: task.made_at_ms)),
    "a renewal starts the lease anew": ("_lease_begin", lambda task, owner, now_ms: now_ms),
    "a lease goes on with another owner": ("_lease_begin", lambda task, owner, now_ms: task.leased_since_ms or now_ms),
    "a claim goes on with the lease that ran out": (
        "_effect_of_claim",
        lambda claim, world, right=rules._effect_of_claim: with_old_leases(right(claim, world)),
    ),
    "a claim takes all": (
        "World.claimable",
        lambda self, claim, right=rules.World.claimable: right(self, replace(claim, limit=1_000)),
    ),
    "what is deleted at once was looked at by nobody": (
        "_effect_of_deletions",
        lambda operation, world: rules._effect_of(operation, world) if isinstance(operation, Commit) else None,
    ),
    "the last of several adds is the successor": ("_successors_among", last_add_succeeds),
    "a move is a deletion": ("_successors_among", lambda adds, deletes: {}),
    "every ending is a change": ("_ending", lambda *_: Ending.CHANGED),
}


@pytest.mark.parametrize(("place", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_the_model_finds_a_broken_rule(monkeypatch, place, fault):
    monkeypatch.setattr(f"tasks_app.core.rules.{place}", fault)
    with pytest.raises(Disagreement):
        check_sequences(2_000)
