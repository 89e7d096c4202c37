"""Check a store that continues from an earlier state, because a lagging standby takes over or a backup is restored.

Losing the later changes is permitted if they are the last ones, each
commit is lost as a whole, and no id is issued again. All other promises hold for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .checker import answers_are_good, ids_are_issued_once, ids_rise
from .history import Event, History

# The checks that hold for lost changes too.
OF_ALL = (answers_are_good, ids_are_issued_once, ids_rise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A return to an earlier state. Times are monotonic."""

    safe_s: float  # The earlier state includes everything acknowledged until then.
    ended_s: float  # When the later state ended.


@dataclass(frozen=True)
class Loss:
    """The lost part of a history with returns, in which no request was repeated with its key."""

    history: History
    returns: Sequence[Return]

    @cached_property
    def lost(self) -> list[Event]:
        """The acknowledged changes that left no trace."""
        return [event for each in self.returns for event in self._before(each) if self.has_no_trace(event)]

    @cached_property
    def left(self) -> History:
        """The history without lost changes, and without reads and refusals that may depend on them."""
        lost = set(map(id, self.lost))
        blind = [(self._first_lost_s(each), each.ended_s) for each in self.returns]
        return replace(
            self.history,
            requests=[
                event
                for event in self.history.requests
                if id(event) not in lost
                and (has_changed(event) or event.is_in_doubt or not any(overlaps(event, *span) for span in blind))
            ],
        )

    @cached_property
    def lost_ids(self) -> set[int]:
        return {task["id"] for event in self.lost for task in event.made}

    @property
    def late(self) -> list[Event]:
        """The requests that named lost tasks afterwards."""
        first_s = min(each.ended_s for each in self.returns)
        return [
            event
            for event in self.history.requests
            if event.sent_s > first_s and self.lost_ids.intersection((*event.named, *event.depends))
        ]

    @property
    def reach_s(self) -> float:
        """The time from the first lost request to the end of the later state."""
        return max(each.ended_s - self._first_lost_s(each) for each in self.returns)

    def violations(self) -> list[str]:
        """Return the violations that checking `left` does not find."""
        of_all = [text for check in OF_ALL for text in check(self.history)]
        return [*of_all, *self._not_the_end(), *self._halves(), *self._known_after()]

    def has_no_trace(self, event: Event) -> bool:
        if event.made:
            return all(task["id"] not in self.history.rows for task in event.made)
        return has_changed(event) and not any(self._has_ended(task_id, event) for task_id in event.named)

    def _has_ended(self, task_id: int, event: Event) -> bool:
        """Whether the history table says that this request removed the task."""
        row = self.history.truth.ended.get(task_id)
        return (
            row is not None
            and row["ended_by"] == event.client
            and event.sent_ms <= row["ended_at_ms"] <= event.received_ms
        )

    def _before(self, end: Return) -> list[Event]:
        """Return the changes between the previous return and this one."""
        earlier_s = max((each.ended_s for each in self.returns if each.ended_s < end.ended_s), default=0.0)
        return [event for event in self.history.done if earlier_s < event.sent_s <= end.ended_s]

    def _first_lost_s(self, end: Return) -> float:
        """Return when the first request was sent that is lost, or may be because it was under way."""
        lost = {id(event) for event in self.lost}
        sent_s = [event.sent_s for event in self._before(end) if id(event) in lost]
        doubtful = [event for event in self.history.in_doubt if event.sent_s <= end.ended_s <= event.received_s]
        return min([*sent_s, *(event.sent_s for event in doubtful)], default=end.ended_s)

    def _not_the_end(self) -> Iterator[str]:
        """Only the last changes are lost."""
        lost = set(map(id, self.lost))
        for each in self.returns:
            events = self._before(each)
            answered_s = min((event.received_s for event in events if id(event) in lost), default=each.ended_s)
            if answered_s < each.safe_s:
                yield f"a change is lost that was answered {each.safe_s - answered_s:.3f} s before the earlier state"
            for event in events:
                is_left = has_changed(event) and id(event) not in lost and event.received_s <= each.ended_s
                if is_left and event.sent_s > answered_s:
                    yield f"{event.path} {event.answer} is left, though a change answered before it was sent is lost"

    def _halves(self) -> Iterator[str]:
        for event in self.lost:
            for task_id in event.named:
                if self._has_ended(task_id, event):
                    yield f"the end of task {task_id} is left of a commit that is lost"

    def _known_after(self) -> Iterator[str]:
        """No request meets a lost task afterwards."""
        for event in self.left.events:
            named = {*event.named, *event.depends} if event.is_done else set()
            if found := self.lost_ids & (named | {task["id"] for task in event.seen}):
                yield f"task {min(found)} is lost, and {event.path} of client {event.client} has met it"


def has_changed(event: Event) -> bool:
    return event.is_done and bool(event.made or event.named)


def overlaps(event: Event, first_s: float, last_s: float) -> bool:
    return event.sent_s <= last_s and event.received_s >= first_s
