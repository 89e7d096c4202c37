"""The checker is checked: a store without fault passes, and each fault that is switched on is found."""

import re
from dataclasses import replace
from typing import ClassVar

import pytest
from msgspec import structs

from lab.chaos.checker import CHECKS, entries_about, violations
from lab.chaos.client import TREE
from lab.chaos.history import History
from tasks_app.core.operations import Duplicate
from taskstore.types.tasks import NewTask, Refusal

from .conftest import MOVES
from .model import BreaksConnections, Server, on_the_wire

pytestmark = pytest.mark.once


# ---- Faults: servers that break one promise each


class AnswersErrors(Server):
    def answer(self, path, body):
        self.answers += 1
        return (503, {"detail": "deadlock"}) if self.answers == 100 else super().answer(path, body)


class UsesIdsAgain(Server):
    def keep(self, **columns):
        self.last_id = max(self.tasks, default=0)
        return super().keep(**columns)


class CountsBackwards(Server):
    def keep(self, **columns):
        self.last_id = (self.last_id or 10**6) - 2
        return super().keep(**columns)


class GivesOneTaskTwice(Server):
    def claim(self, claim, claimable):
        before = dict(self.tasks)
        made = super().claim(claim, claimable)
        self.tasks = before | self.tasks
        return made


class SaysCancelledAndDoesNothing(Server):
    def cancel(self, ids):
        return [task.id for task in self.tasks.values() if task.id in ids]


class BringsBackWhatWasCancelled(Server):
    def truth(self):
        truth = super().truth()
        [row, *_] = (row for row in self.ended.values() if row["ending"] == "cancelled")
        new = self.last_id + 1
        truth.living[new] = {**row, "id": new, "data": ""}
        return truth


class ClosesABatchEarly(Server):
    def close_batches(self):
        self.tasks, before = dict(list(self.tasks.items())[len(self.tasks) // 2 :]), self.tasks
        super().close_batches()
        self.tasks = before | self.tasks


class ForgetsABatch(Server):
    def add_then(self, batch, data):
        if batch % 2:
            super().add_then(batch, data)


class GoesOnAfterACancel(Server):
    """It cancels the other members, too: so that some batches close by it."""

    def cancel(self, ids):
        batches = {self.batch_of.get(task.origin, -1) for task in self.tasks.values() if task.origin in ids}
        return super().cancel([*ids, *(origin for origin, batch in self.batch_of.items() if batch in batches)])

    def follows(self, batch):
        return True


class ClosesABatchTwice(Server):
    def add_then(self, batch, data):
        super().add_then(batch, data)
        super().add_then(batch, data)


class TellsNoFailure(Server):
    """The wrong tree is a whole one that has closed without a task."""

    wrong: ClassVar[dict[str, int]] = {"gone": 1, "total": 1}

    def truth(self):
        truth = super().truth()
        numbers = dict.fromkeys(("refuses", "has_failed", "children", "failed_children", "steps", "open", "failed"), 0)
        tree = {"id": 9_999, "root": 9_999, "parent": 0, "name": TREE, "path": "", "problem": "", **numbers}
        truth.batches[9_999] = {**tree, "gone": 0, "total": 0, "closed_at_ms": 1, **self.wrong}
        return truth


class ForgetsWhatFollows(TellsNoFailure):
    wrong: ClassVar[dict[str, int]] = {}


class LosesAStep(TellsNoFailure):
    wrong: ClassVar[dict[str, int]] = {"steps": 1, "failed_children": 0}


class MiscountsATree(TellsNoFailure):
    wrong: ClassVar[dict[str, int]] = {"closed_at_ms": 0, "open": 1}


class NeverCloses(TellsNoFailure):
    wrong: ClassVar[dict[str, int]] = {"closed_at_ms": 0, "has_failed": 0}


class ExceedsALimit(Server):
    def within_limits(self, claim, claimable):
        return claimable


class ForgetsWhatItAnswered(Server):
    def truth(self):
        del self.tasks[max(self.tasks)]
        return super().truth()


class BringsBackWhatWasDeleted(Server):
    def truth(self):
        [some, *_] = (task_id for task_id, row in self.ended.items() if row["successor"] is None)
        truth = super().truth()
        truth.living[some] = {**self.ended.pop(some), "data": ""}
        return truth


class KeepsOthersData(Server):
    def truth(self):
        truth = super().truth()
        truth.living[max(truth.living)]["data"] = "another's"
        return truth


class AddsOnItsOwn(Server):
    def truth(self):
        self.last_commit += 1
        self.added(NewTask(group="mail", data=b"0/0"), 1, None)
        return super().truth()


class DoesHalfOfWhatIsInDoubt(Server):
    """It adds, the connection breaks, and what was to be deleted stays."""

    def commit(self, commit):
        if commit.adds and commit.deletes and self.reasons_against(commit) == Refusal():
            self.last_commit += 1
            for add in commit.adds:
                self.added(add, commit.owner, None)
            raise OSError
        return super().commit(commit)


class DoesTheOtherHalf(Server):
    """It deletes, and what was to be added is missing."""

    def commit(self, commit):
        if commit.adds and commit.deletes and self.reasons_against(commit) == Refusal():
            super().commit(structs.replace(commit, adds=()))
            raise OSError
        return super().commit(commit)


class DeletesWhatIsGone(Server):
    def commit(self, commit):
        there = tuple(number for number in commit.deletes if number in self.tasks)
        made = super().commit(structs.replace(commit, deletes=there))
        nothing_left = not (commit.adds or commit.updates or there)
        return [] if commit.deletes and nothing_left else made


class SplitsACommit(Server):
    def end(self, task, ending, successor, asked):
        super().end(task, ending, successor, asked)
        self.ended[task.id]["ended_by_commit"] -= 1


class HasTwoSuccessors(Server):
    def truth(self):
        truth = super().truth()
        [one, other, *_] = (row for row in truth.ended.values() if row["successor"] is not None)
        truth.ended[other["id"]] = {**other, "successor": one["successor"]}
        return truth


class IgnoresTheTime(Server):
    def claim(self, claim, claimable):
        now_ms, self.now_ms = self.now_ms, 10**12
        made = super().claim(claim, claimable)
        self.now_ms = now_ms
        if isinstance(made, Refusal):
            return made
        made = [task._replace(available_at_ms=task.available_at_ms - 10**12 + now_ms) for task in made]
        self.tasks.update({task.id: task for task in made})
        return made


class ChangesTheDataInAClaim(Server):
    def claim(self, claim, claimable):
        made = super().claim(claim, claimable)
        if isinstance(made, Refusal):
            return made
        made = [task._replace(data=b"changed") for task in made]
        self.tasks.update({task.id: task for task in made})
        return made


class IgnoresOwners(Server):
    def held_by_others(self, commit):
        return []


class IgnoresLimits(Server):
    def claim(self, claim, claimable):
        return super().claim(structs.replace(claim, limit=9), claimable)


class RefusesForNoReason(Server):
    def commit(self, commit):
        self.answers += 1
        if commit.deletes and self.answers % 10 == 0:
            return Refusal(deletes=commit.deletes)
        return super().commit(commit)


class TakesTheOwnerForAnother(Server):
    def held_by_others(self, commit):
        return [
            number for number in commit.changed_ids if number in self.tasks and self.tasks[number].owner == commit.owner
        ]


class SaysNothingForNoReason(Server):
    def claim(self, claim, claimable):
        self.answers += 1
        return [] if self.answers % 10 == 0 else super().claim(claim, claimable)


class ShowsWhatIsGone(Server):
    def __init__(self):
        super().__init__()
        self.all = {}

    def keep(self, **columns):
        task = super().keep(**columns)
        self.all[task.id] = on_the_wire(task, self.batch_of)
        return task

    def answer(self, path, body):
        if path == "/tasks":
            return 200, [self.all[number] for number in body["ids"]]
        return super().answer(path, body)


class LeavesOut(Server):
    def answer(self, path, body):
        status, answer = super().answer(path, body)
        return status, answer[1:] if path.startswith("/group/") else answer


class ShowsOtherData(Server):
    def answer(self, path, body):
        status, answer = super().answer(path, body)
        if path.startswith("/group/"):
            answer = [{**task, "priority": 1} for task in answer]
        return status, answer


class ShowsHalfACommit(Server):
    """Only what came first of what came last."""

    def answer(self, path, body):
        status, answer = super().answer(path, body)
        if path.startswith("/group/"):
            half = {task.id for task in self.tasks.values() if task.made_by_commit == self.last_commit}
            answer = [task for task in answer if task["id"] not in sorted(half)[1:]]
        return status, answer

    def keep(self, **columns):
        return super().keep(**{**columns, "group": "mail"})


class ShowsWhatWasReplacedToo(ShowsWhatIsGone):
    def answer(self, path, body):
        status, answer = super().answer(path, body)
        if path.startswith("/group/"):
            shown = {task["id"] for task in answer}
            replaced = (row["id"] for row in self.ended.values() if row["successor"] in shown)
            answer = [*answer, *(self.all[number] for number in replaced)]
        return status, answer


class IgnoresDepends(Server):
    """Without locks two commits that depend on what the other removes both happen."""

    def reasons_against(self, commit):
        refusal = super().reasons_against(commit)
        return structs.replace(refusal, depends=())


class DoesItAgain(BreaksConnections):
    def do_once(self, path, body):
        return super().do_once(path, {name: value for name, value in body.items() if name != "key"})


class Miscounts(Server):
    def truth(self):
        truth = super().truth()
        return replace(truth, counts={group: count + 1 for group, count in truth.counts.items()})


class CountsBelowZero(Server):
    def stats(self):
        stats = super().stats()
        for group in stats["groups"]:
            group["ready"] -= 1_000
        return stats


class ForgetsKeys(Server):
    def commit(self, commit):
        self.answers += 1
        if self.answers % 10 == 0:
            self.keys.clear()
        return super().commit(commit)


class ForgetsTheGroupsOfKeys(Server):
    """A duplicate may be any task with the key."""

    def duplicate(self, holder, commit, removed, before):
        shown = super().duplicate(holder, commit, removed, before)
        others = [task for task in self.tasks.values() if task.unique == shown.unique]
        return Duplicate.of(others[0])


class NamesAnotherClientInTheTrail(Server):
    def truth(self):
        truth = super().truth()
        for row in truth.ended.values():
            row["ended_by"] += 1
        return truth


FAULTS = {
    AnswersErrors: "answers_are_good",
    UsesIdsAgain: "ids_are_issued_once",
    CountsBackwards: "ids_rise",
    GivesOneTaskTwice: "chains_are_chains",
    ForgetsWhatItAnswered: "nothing_answered_is_lost",
    BringsBackWhatWasDeleted: "nothing_answered_is_lost",
    KeepsOthersData: "nothing_answered_is_lost",
    NamesAnotherClientInTheTrail: "nothing_answered_is_lost",
    AddsOnItsOwn: "nothing_comes_from_nowhere",
    DoesHalfOfWhatIsInDoubt: "commits_are_whole",
    DoesTheOtherHalf: "commits_are_whole",
    SplitsACommit: "commits_are_whole",
    ForgetsKeys: "one_living_task_holds_a_key",
    ForgetsTheGroupsOfKeys: "one_living_task_holds_a_key",
    ClosesABatchEarly: "a_then_is_added_once_and_never_early",
    ForgetsABatch: "a_then_is_added_once_and_never_early",
    GoesOnAfterACancel: "a_then_is_added_once_and_never_early",
    ClosesABatchTwice: "a_then_is_added_once_and_never_early",
    TellsNoFailure: "a_tree_ends_as_its_tasks_do",
    ForgetsWhatFollows: "a_tree_ends_as_its_tasks_do",
    LosesAStep: "a_tree_ends_as_its_tasks_do",
    MiscountsATree: "a_tree_ends_as_its_tasks_do",
    NeverCloses: "a_tree_ends_as_its_tasks_do",
    ExceedsALimit: "no_limit_is_exceeded",
    SaysCancelledAndDoesNothing: "what_is_cancelled_never_runs_again",
    BringsBackWhatWasCancelled: "what_is_cancelled_never_runs_again",
    DeletesWhatIsGone: "no_task_is_removed_twice",
    HasTwoSuccessors: "chains_are_chains",
    IgnoresTheTime: "claims_are_right",
    ChangesTheDataInAClaim: "claims_are_right",
    IgnoresLimits: "claims_are_right",
    IgnoresOwners: "owners_are_respected",
    RefusesForNoReason: "refusals_are_true",
    TakesTheOwnerForAnother: "refusals_are_true",
    SaysNothingForNoReason: "nothing_means_nothing",
    ShowsWhatIsGone: "reads_are_true",
    ShowsOtherData: "reads_are_true",
    LeavesOut: "listings_are_complete",
    ShowsHalfACommit: "commits_are_shown_whole",
    ShowsWhatWasReplacedToo: "commits_are_shown_whole",
    IgnoresDepends: "one_order_explains_all",
    DoesItAgain: "keys_have_one_answer",
    Miscounts: "counts_are_true",
    CountsBelowZero: "counts_are_true",
}


@pytest.mark.parametrize("server", [Server, BreaksConnections])
def test_a_store_that_keeps_its_promises_passes(record, server):
    history = record(server())
    assert violations(history) == []
    assert len(history.done) > MOVES / 3
    assert bool(history.in_doubt) == (server is BreaksConnections)


def test_what_is_sent_again_until_it_is_answered_leaves_no_doubt(record):
    history = record(BreaksConnections(), resends=True)
    assert violations(history) == []
    assert any(request.is_in_doubt for request in history.requests)
    assert [event for event in history.in_doubt if not event.is_claim] == []


@pytest.mark.parametrize(("server", "check"), FAULTS.items(), ids=[fault.__name__ for fault in FAULTS])
def test_a_broken_promise_is_found(record, server, check):
    found = violations(record(server(), resends=server is DoesItAgain))
    assert any(text.startswith(check) for text in found), found[:5]


def test_a_violation_is_shown_with_the_requests_that_it_is_about(record):
    history = record(IgnoresOwners())
    [violation, *_] = violations(history)
    [task_id] = re.findall(r"task (\d+)", violation)
    about = entries_about(violation, history)
    assert any(int(task_id) in event.named for event in about)
    assert any(int(task_id) in {task["id"] for task in event.made} for event in about)
    assert len(about) < len(history.requests) / 10


def test_a_store_that_can_not_work_says_so_and_when_to_come_again(record):
    class Away(Server):
        def answer(self, path, body):
            self.answers += 1
            if self.answers % 10 == 0:
                return 503, {"detail": "the database can't be reached", "code": "unavailable"}
            return super().answer(path, body)

    history = record(Away())
    assert {text.partition(":")[0] for text in violations(history)} == {"answers_are_good"}
    told = [replace(request, retry_after="1") for request in history.requests]
    assert violations(History(told, history.truth, may_be_unavailable=True)) == []
    assert violations(History(told, history.truth)) != []
    assert violations(History(history.requests, history.truth, may_be_unavailable=True)) != []


def test_each_check_finds_a_fault():
    assert {check.__name__ for check in CHECKS} == set(FAULTS.values())
