"""A store behind the wire, with a trail as the database has it: plain, and quick."""

from collections import Counter
from dataclasses import replace

from msgspec import structs

from lab.chaos.checker import limit_of
from lab.chaos.history import Truth
from tasks_app.core.operations import Claim, Commit, Duplicate, Operator
from taskstore.types.tasks import Change, Ending, NewTask, Order, Refusal
from tests.rules.model import NaiveStore


class Server(NaiveStore):
    """The plain model behind the wire, with a trail as the database has it."""

    def __init__(self):
        super().__init__()
        self.ended = {}
        self.answers = 0
        self.kept = {}
        self.claimed_at = []
        self.batches = {}  # The data of what comes then, by id; None: it was added.
        self.batch_of = {}  # By origin.
        self.gone: Counter[int | None] = Counter()  # How many members were cancelled, by batch.

    def perform(self, operation, claimable=None):
        done = super().perform(operation, claimable)
        if isinstance(operation, Commit) and not isinstance(done, Refusal):
            for add, task in zip(operation.adds, done, strict=False):
                if add.batch and not isinstance(task, Duplicate):
                    self.batch_of[task.origin] = add.batch
            self.close_batches()
        return done

    def close_batches(self):
        are_open = {self.batch_of.get(task.origin) for task in self.tasks.values()}
        for batch, then in self.batches.items():
            if then is not None and batch not in are_open:
                self.batches[batch] = None
                if self.follows(batch):
                    self.add_then(batch, then)

    def follows(self, batch):
        return not self.gone[batch]

    def add_then(self, batch, data):
        nothing = {"data_type": "", "error": "", "priority": 0, "claims": 0, "leased_since_ms": 0, "unique": ""}
        times = {"available_at_ms": self.now_ms, "created_at_ms": self.now_ms}
        labels = {"after_batch": str(batch)}
        self.keep(group="then", owner=0, data=data.encode(), labels=labels, origin=None, **times, **nothing)

    def create_batch(self, body):
        batch = len(self.batches) + 1
        self.batches[batch] = body["then"][0]["data"]
        commit = commit_of(body)
        if not commit.adds:  # It closes in the commit that makes it.
            self.close_batches()
            return {"batch": {"id": batch, "open": 0}, **outcome([], self.batch_of)}
        made = self.perform(structs.replace(commit, adds=tuple(replace(add, batch=batch) for add in commit.adds)))
        return {"batch": {"id": batch, "open": len(made)}, **outcome(made, self.batch_of)}

    def claim(self, claim, claimable):
        return super().claim(claim, self.within_limits(claim, claimable))

    def within_limits(self, claim, claimable):
        """Those of the claimable ids that the limit of the group allows to be claimed, as many as are wanted."""
        [group] = claim.groups
        limit = limit_of(group)
        if limit is None:
            return claimable
        leased = Counter(self.value(task, limit) for task in self.tasks.values() if task.group == group and task.leased)
        per = limit.get("rate", {"claims": 10**9, "per": 0})
        left = per["claims"] - sum(at_ms > self.now_ms - per["per"] for at_ms in self.claimed_at)
        chosen: list[int] = []
        ids = set(claimable)
        found = [task for task in self.tasks.values() if task.id in ids and task.group == group]
        for task in sorted(found, key=lambda task: (-task.priority, task.available_at_ms, task.id)):
            value = self.value(task, limit)
            has_slot = task.leased or leased[value] < limit["running"]
            if task.available_at_ms <= self.now_ms and has_slot and len(chosen) < min(left, claim.limit):
                leased[value] += not task.leased
                chosen.append(task.id)
        if group == "few" and all(number in self.tasks for number in claim.depends):
            self.claimed_at += [self.now_ms] * len(chosen)
        return chosen

    def reasons_against(self, commit):
        """Also that an update leases what nobody holds, where there is no slot for it."""
        refusal = super().reasons_against(commit)
        for change in commit.updates:
            task = self.tasks.get(change.id)
            limit = limit_of(task.group) if task else None
            if task and limit and change.timespec_ms < 0 and not change.release and not task.leased:
                same = [each for each in self.tasks.values() if each.group == task.group and each.leased]
                value = self.value(task, limit)
                if sum(self.value(each, limit) == value for each in same) >= limit["running"]:
                    return structs.replace(refusal, bugs=("no slot",))
        return refusal

    @staticmethod
    def value(task, limit):
        return task.labels.get(limit["by"], "") if "by" in limit else ""

    def answer(self, path, body):
        """The status and the answer. Raises OSError when the connection breaks."""
        if path == "/stats":
            return 200, self.stats()
        if path == "/cancel":
            return 200, {"ids": self.cancel(body["ids"]), "after": ""}
        if path.startswith("/group/"):
            name = path.removeprefix("/group/").partition("?")[0]
            return 200, [on_the_wire(task, self.batch_of) for task in self.tasks.values() if task.group == name]
        if path == "/tasks":
            found = map(self.tasks.get, body["ids"])
            return 200, [on_the_wire(task, self.batch_of) if task else None for task in found]
        return 200, self.do_once(path, body)

    def cancel(self, ids):
        living = tuple(task.id for task in self.tasks.values() if task.id in ids or task.origin in ids)
        if living:
            self.perform(Commit(owner=0, deletes=living, operator=Operator(name="ann", ending=Ending.CANCELLED)))
        return list(living)

    def stats(self):
        groups = Counter(task.group for task in self.tasks.values())
        states = dict.fromkeys(("claimed", "expired", "scheduled", "failed"), 0)
        return {"groups": [{"group": group, "ready": count, **states} for group, count in groups.items()]}

    def do_once(self, path, body):
        key = body["clientid"], body.get("key")
        answer = self.kept.get(key) or self.do(path, body)
        if "key" in body and (path != "/claim" or answer["tasks"] or answer["error"]):
            self.kept[key] = answer
        return answer

    def do(self, path, body):
        if path == "/batches":
            return self.create_batch(body)
        return outcome(self.perform(claim_of(body) if path == "/claim" else commit_of(body)), self.batch_of)

    def end(self, task, ending, successor, asked):
        super().end(task, ending, successor, asked)
        if ending is Ending.CANCELLED and successor is None:
            self.gone[self.batch_of.get(task.origin)] += 1
        self.ended[task.id] = {
            **task._asdict(),
            "ended_at_ms": self.now_ms,
            "ended_by": asked.owner,
            "ended_by_commit": self.last_commit,
            "ending": ending.value,
            "successor": successor and successor.id,
        }
        del self.ended[task.id]["data"]

    def truth(self):
        living = {
            task.id: {**task._asdict(), "data": task.whole_data.decode(), "batch": self.batch_of.get(task.origin, 0)}
            for task in self.tasks.values()
        }
        open_ones = Counter(row["batch"] for row in living.values())
        batches = {batch: {"id": batch, "open": open_ones[batch], "gone": self.gone[batch]} for batch in self.batches}
        counts = Counter(row["group"] for row in living.values())
        return Truth(living=living, ended=self.ended, counts=counts, batches=batches)


def on_the_wire(task, batch_of):
    return {
        "id": task.id,
        "group": task.group,
        "data": task.whole_data.decode(),
        "timespec": task.available_at_ms,
        "ownerid": task.owner,
        "error": task.error,
        "labels": task.labels,
        "priority": task.priority,
        "origin": task.origin,
        "claims": task.claims,
        "created": task.created_at_ms,
        **({"unique": task.unique} if task.unique else {}),
        **({"batch": batch_of[task.origin]} if task.origin in batch_of else {}),
        **({"duplicate": True} if isinstance(task, Duplicate) else {}),
    }


def outcome(result, batch_of):
    if isinstance(result, Refusal):
        names = ("changes", "deletes", "depends", "owned", "bugs")
        return {"tasks": [], "error": {name: list(getattr(result, name)) for name in names}}
    return {"tasks": [on_the_wire(task, batch_of) for task in result], "error": None}


def claim_of(body):
    return Claim(
        groups=(body["group"],),
        owner=body["clientid"],
        duration_ms=body["duration"],
        limit=body["limit"],
        order=Order(body["order"]),
        depends=tuple(body.get("depends", ())),
    )


def commit_of(body):
    return Commit(
        owner=body["clientid"],
        adds=tuple(
            NewTask(
                group=add["group"],
                data=add["data"].encode(),
                timespec_ms=add["timespec"],
                priority=add["priority"],
                id=add.get("id", 0),
                unique=add.get("unique"),
                labels=add["labels"],
                batch=add.get("batch", 0),
            )
            for add in body.get("adds", ())
        ),
        updates=tuple(
            Change(
                id=update["id"],
                data=None if update.get("keep") else update.get("data", "").encode(),
                error=None if update.get("keep") else "",
                timespec_ms=update.get("timespec", 0),
                release=update.get("release", False),
            )
            for update in body.get("updates", ())
        ),
        deletes=tuple(body.get("deletes", ())),
        depends=tuple(body.get("depends", ())),
    )


class BreaksConnections(Server):
    """No fault: some answers get lost, of things that were done and of things that were not."""

    def answer(self, path, body):
        self.answers += 1
        if self.answers % 20 == 0:
            raise OSError
        done = super().answer(path, body)
        if self.answers % 13 == 0:
            raise OSError
        return done
