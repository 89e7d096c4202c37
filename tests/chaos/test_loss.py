"""What a store loses that goes back to an earlier state is counted; whatever else goes wrong meanwhile is found."""

from copy import deepcopy

import pytest

from lab.chaos.checker import violations
from lab.chaos.loss import Loss, Return

from .model import Server, on_the_wire

pytestmark = pytest.mark.once

KEPT_AT, BACK_AT = 250, 350  # Requests; there are at least so many more.
JUMP = 2**32


class GoesBack(Server):
    """At one moment it is what it was at an earlier one; but for its ids, which jump ahead."""

    def answer(self, path, body):
        self.answers += 1
        if self.answers == KEPT_AT:
            self.safe_s, self.earlier = self.now_ms / 1000, self.state()
        if self.answers == BACK_AT:
            self.ended_s = self.now_ms / 1000
            self.go_back()
        return super().answer(path, body)

    def state(self):
        return deepcopy((self.tasks, self.ended, self.last_commit, self.last_id))

    def go_back(self):
        self.tasks, self.ended, self.last_commit, self.last_id = self.earlier
        self.last_id += JUMP

    def loss(self, history):
        return Loss(history, [Return(safe_s=self.safe_s, ended_s=self.ended_s)])


class IssuesIdsAgain(GoesBack):
    def go_back(self):
        super().go_back()
        self.last_id -= JUMP


class GoesBackTooFar(GoesBack):
    def loss(self, history):
        return Loss(history, [Return(safe_s=self.ended_s, ended_s=self.ended_s)])


class LosesSomethingInBetween(GoesBack):
    """Of what came after the earlier state it has lost the older half only."""

    def answer(self, path, body):
        if self.answers == KEPT_AT + 50:
            self.newer_than = self.last_id
        return super().answer(path, body)

    def go_back(self):
        newest, last_commit = self.last_id, self.last_commit
        kept = {number: task for number, task in self.tasks.items() if number > self.newer_than}
        super().go_back()
        gone = {task.origin for task in kept.values()}
        self.tasks = {number: task for number, task in self.tasks.items() if task.origin not in gone} | kept
        self.last_id, self.last_commit = newest + JUMP, last_commit


class LosesHalfOfCommits(GoesBack):
    """What commits removed stays away; what they made is lost."""

    def go_back(self):
        ended = self.ended
        super().go_back()
        self.tasks = {number: task for number, task in self.tasks.items() if number not in ended}
        self.ended = ended


class ShowsWhatIsLost(GoesBack):
    def go_back(self):
        lost = self.tasks
        super().go_back()
        self.lost = lost

    def answer(self, path, body):
        status, answer = super().answer(path, body)
        if path == "/tasks" and self.answers > BACK_AT:
            answer = [self.shown(number) or task for number, task in zip(body["ids"], answer, strict=True)]
        return status, answer

    def shown(self, number):
        return on_the_wire(self.lost[number]) if number in self.lost else None


def test_what_is_lost_is_counted_and_nothing_else_is_wrong(record):
    server = GoesBack()
    history = record(server)
    assert violations(history) != []
    loss = server.loss(history)
    assert (loss.violations(), violations(loss.left)) == ([], [])
    assert len(loss.lost) > 10
    assert loss.late
    assert all(event.refusal for event in loss.late)
    assert 0 < loss.reach_s <= server.ended_s - server.safe_s


def test_nothing_is_lost_where_the_earlier_state_is_the_last_one(record):
    server = Server()
    history = record(server)
    middle_s = history.events[len(history.events) // 2].sent_s
    loss = Loss(history, [Return(safe_s=middle_s, ended_s=middle_s)])
    assert (loss.lost, loss.violations(), violations(loss.left)) == ([], [], [])


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        (IssuesIdsAgain, "was issued 2 times"),
        (GoesBackTooFar, "before the earlier state"),
        (LosesSomethingInBetween, "is left, though"),
        (LosesHalfOfCommits, "is left of a commit that is lost"),
        (ShowsWhatIsLost, "has met it"),
    ],
)
def test_what_goes_wrong_meanwhile_is_found(record, server, complaint):
    server = server()
    history = record(server)
    assert complaint in " ".join(server.loss(history).violations())
