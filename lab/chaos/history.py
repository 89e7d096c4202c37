"""The requests and responses of clients, and the tables in the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

Row = dict[str, Any]

NEVER_S = float("inf")
UNAVAILABLE = 503  # Nothing was done, unless the response says that the outcome is unknown.


@dataclass(frozen=True, kw_only=True)
class Event:
    """A request and its response. Without a response it is in doubt: it may have been done or not."""

    client: int
    path: str
    body: Any
    sent_s: float
    received_s: float
    sent_ms: int
    received_ms: int
    status: int | None
    answer: Any
    retry_after: str | None = None

    @property
    def is_change(self) -> bool:
        return self.path in ("/update", "/claim", "/batches")

    @property
    def is_claim(self) -> bool:
        return self.path == "/claim"

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged."""
        return self.is_change and self.status == 200 and not self.answer["error"]

    @property
    def is_in_doubt(self) -> bool:
        return self.is_change and (self.status is None or self.is_unknown)

    @property
    def is_unknown(self) -> bool:
        """Whether the server itself does not know the outcome."""
        return self.status == UNAVAILABLE and self.answer.get("code") == "commit_unknown"

    @property
    def is_nothing(self) -> bool:
        """Whether it is a claim that found nothing, whose response is not kept for its key."""
        return self.is_claim and self.is_done and not self.made and not self.gone

    @property
    def gone(self) -> list[int]:
        """The ids of tasks that it claimed, and that were not there any more when it was repeated."""
        return list(self.answer.get("gone", ())) if self.is_claim and self.is_done else []

    @property
    def cancelled(self) -> list[int]:
        """The ids that it cancelled, according to its response."""
        return list(self.answer["ids"]) if self.path == "/cancel" and self.status == 200 else []

    @property
    def key(self) -> str:
        """The idempotency key; empty if a repetition would be another request."""
        return str(self.body.get("key", "")) if self.is_change else ""

    @property
    def made(self) -> list[Row]:
        return [task for task in self.answer["tasks"] if not task.get("duplicate")] if self.is_done else []

    @property
    def keyed(self) -> list[tuple[Row, Row]]:
        """The adds with unique keys, each with the task in its place."""
        adds = self.body.get("adds", []) if self.is_done and not self.is_claim else []
        return [pair for pair in zip(adds, self.answer["tasks"], strict=False) if "unique" in pair[0]] if adds else []

    @property
    def lasting_answer(self) -> Any:
        """The answer without what changes later: of a claim the ids, of which some may have gone."""
        if self.is_claim and self.is_done:
            return sorted([*(task["id"] for task in self.made), *self.gone])
        return {**self.answer, "batch": self.answer["batch"]["id"]} if "batch" in self.answer else self.answer

    @property
    def refusal(self) -> Row:
        return (self.answer["error"] or {}) if self.is_change and self.status == 200 else {}

    @property
    def named(self) -> list[int]:
        """The ids that it updates or deletes."""
        if not self.is_change:
            return []
        return [update["id"] for update in self.body.get("updates", [])] + list(self.body.get("deletes", []))

    @property
    def depends(self) -> list[int]:
        return list(self.body.get("depends", [])) if self.is_change else []

    @property
    def makes(self) -> range:
        """The possible numbers of tasks that a commit makes: none for an add whose key is taken."""
        adds = self.body.get("adds", [])
        most = len(adds) + len(self.body.get("updates", []))
        return range(most - sum("unique" in add for add in adds), most + 1)

    @property
    def seen(self) -> list[Row]:
        """The tasks in the response, also those that hold the keys of adds."""
        if self.status != 200 or self.path in ("/stats", "/cancel"):
            return []
        tasks = self.answer["tasks"] if self.is_change else self.answer
        return [without_mark(task) if "duplicate" in task else task for task in tasks if task and "data" in task]

    @property
    def listed_group(self) -> str:
        """The group that it lists; empty if it is not an answered listing."""
        name = self.path.removeprefix("/group/").partition("?")[0]
        return name if self.path.startswith("/group/") and self.status == 200 else ""


def without_mark(task: Row) -> Row:
    """Return the holder of a key as it was made."""
    return {name: value for name, value in task.items() if name != "duplicate"}


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The tables at rest, and the store's own count of tasks by group."""

    living: dict[int, Row]
    ended: dict[int, Row]
    counts: Mapping[str, int] = field(default_factory=dict)
    batches: dict[int, Row] = field(default_factory=dict)  # With the number of their open members.


@dataclass(frozen=True)
class History:
    """All events in the order of sending, and the final tables.

    `requests` are all sent requests; in `events` a request repeated with its key is one event.
    """

    requests: Sequence[Event]
    truth: Truth
    may_be_unavailable: bool = False  # Whether a 503 is a correct response, because the database was killed.

    @cached_property
    def events(self) -> list[Event]:
        return sorted(merged(self.requests), key=lambda event: event.sent_s)

    @cached_property
    def done(self) -> list[Event]:
        return [event for event in self.events if event.is_done]

    @cached_property
    def in_doubt(self) -> list[Event]:
        return [event for event in self.events if event.is_in_doubt]

    @cached_property
    def doubts(self) -> Counter[tuple[int, int]]:
        """The number of requests in doubt that name a task, by client and id."""
        return Counter((event.client, task_id) for event in self.in_doubt for task_id in event.named)

    @cached_property
    def maker(self) -> dict[int, Event]:
        """The event whose response contains a task as new, by id."""
        return {task["id"]: event for event in self.done for task in event.made}

    @cached_property
    def made(self) -> dict[int, Row]:
        return {task["id"]: task for event in self.done for task in event.made}

    @cached_property
    def known(self) -> dict[int, Row]:
        """The task as it was made, or else as it was first seen, by id."""
        shown = {task["id"]: task for event in reversed(self.events) for task in event.seen}
        return {**shown, **self.made}

    @cached_property
    def predecessor(self) -> dict[int, int]:
        return {row["successor"]: row["id"] for row in self.truth.ended.values() if row["successor"] is not None}

    @cached_property
    def deleter(self) -> dict[int, Event]:
        """The acknowledged event that updated, deleted or cancelled a task, by id."""
        changed = {task_id: event for event in self.done if not event.is_claim for task_id in event.named}
        return {task_id: event for event in self.events for task_id in event.cancelled} | changed

    @cached_property
    def rows(self) -> dict[int, Row]:
        """All rows, of existing and ended tasks."""
        return self.truth.living | self.truth.ended

    @cached_property
    def keyed_chains(self) -> dict[int, tuple[str, float, float]]:
        """The key of each chain with one, and from when until when the chain certainly existed, by origin."""
        born: dict[int, tuple[str, float]] = {}
        for event in self.events:
            for task in event.seen:
                if "unique" in task:
                    _, born_s = born.get(task["origin"], ("", NEVER_S))
                    born[task["origin"]] = task["unique"], min(born_s, event.received_s)
        for row in self.truth.living.values():
            if row["unique"]:
                born.setdefault(row["origin"], (row["unique"], self.end_s))
        ended_s = {row["origin"]: NEVER_S for row in self.truth.living.values()}
        for row in self.truth.ended.values():
            if row["successor"] is None:
                remover = self.remover(row["id"])
                ended_s[row["origin"]] = remover.sent_s if remover else 0.0
        return {origin: (key, born_s, ended_s.get(origin, 0.0)) for origin, (key, born_s) in born.items()}

    @cached_property
    def end_s(self) -> float:
        return max((event.received_s for event in self.events), default=0.0)

    @cached_property
    def lives(self) -> dict[tuple[str, int], list[tuple[float, float, Row]]]:
        """The tasks that certainly existed at some time in a second, with their times, by group and second."""
        found: dict[tuple[str, int], list[tuple[float, float, Row]]] = defaultdict(list)
        for task in self.made.values():
            born_s, ended_s = self.life_s(task["id"])
            for second in range(int(born_s), int(min(ended_s, self.end_s)) + 1):
                found[task["group"], second].append((born_s, ended_s, task))
        return found

    def there_all_the_time(self, group: str, event: Event) -> Iterator[Row]:
        """Yield the tasks of the group that certainly existed for the whole duration of the event."""
        for born_s, ended_s, task in self.lives.get((group, int(event.sent_s)), ()):
            if born_s <= event.sent_s and event.received_s <= ended_s:
                yield task

    def remover(self, task_id: int) -> Event | None:
        """Return the acknowledged event that updated, deleted or claimed the task."""
        ended = self.truth.ended.get(task_id)
        return self.deleter.get(task_id) or (self.maker.get(ended["successor"]) if ended else None)

    def life_s(self, task_id: int) -> tuple[float, float]:
        """Return when the task certainly existed: from the response that made it to the request that ended it."""
        maker = self.maker.get(task_id)
        born_s = maker.received_s if maker else NEVER_S
        if task_id not in self.truth.ended:
            return born_s, NEVER_S
        remover = self.remover(task_id)
        return born_s, remover.sent_s if remover else 0.0

    def was_there(self, task_id: int, event: Event) -> bool:
        """Whether the task certainly existed for the whole duration of the event."""
        born_s, ended_s = self.life_s(task_id)
        return born_s <= event.sent_s and event.received_s <= ended_s


def events_in(files: Iterable[Path]) -> Iterator[Event]:
    for file in files:
        for line in file.read_text().splitlines():
            yield Event(**json.loads(line))


def merged(requests: Sequence[Event]) -> Iterator[Event]:
    """Yield one event for all requests with the same key."""
    by_key: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for request in requests:
        if request.key:
            by_key[request.client, request.key].append(request)
        else:
            yield request
    for attempts in by_key.values():
        yield asked_once(sorted(attempts, key=lambda attempt: attempt.sent_s))


def asked_once(attempts: Sequence[Event]) -> Event:
    """Return one event from the first request to the response; without one it is in doubt if any attempt is."""
    doubtful = [attempt for attempt in attempts if attempt.is_in_doubt]
    # An attempt in doubt may still claim something, even if another one found nothing.
    answered = [attempt for attempt in attempts if attempt.status == 200 and not (doubtful and attempt.is_nothing)]
    last = [*attempts[-1:], *doubtful[:1], *answered[:1]][-1]
    until = last if answered else attempts[-1]
    return replace(
        last,
        sent_s=attempts[0].sent_s,
        sent_ms=attempts[0].sent_ms,
        received_s=until.received_s,
        received_ms=until.received_ms,
    )
