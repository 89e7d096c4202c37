"""Tell the story of a task in steps, from the chain of its ids. Pure; makes no HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from taskstore.types.tasks import Ending

from ..models import EndedTask, Task
from ..reading.history import Chain

WHOLE = 1_000
NO_NAMES: Mapping[int, str] = {}
LONGEST = 200  # Steps that are shown; a lease may have been renewed for days.

Link = EndedTask | Task  # One id of the chain.


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event: the sentence `what` `who` `then`, with its time and details."""

    look: str  # Its colour: a state, or "quiet" or "over".
    what: str
    who: str = ""
    then: str = ""  # The end of the sentence, where it continues after `who`.
    by: str = ""  # The client or person, unless `who` names it.
    at_ms: int
    held_ms: int | None = None  # How long its owner had held it.
    waited_ms: int | None = None  # How long it had been available.
    lease_ms: int | None = None
    id: int | None = None  # The new id of the task.
    error: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The steps in order, without the `left_out` oldest ones when there are too many."""

    steps: list[Step]
    left_out: int
    lasted_ms: int
    parts: list[Part]  # The time between the shown steps.


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a task was for a time: from where and how long, in thousandths of the whole."""

    look: str
    start: int
    length: int


def story_of(chain: Chain, now_ms: int, names: Mapping[int, str] = NO_NAMES) -> Story:
    """Return the events of a task up to now. `names`: of clients, which are numbers otherwise."""
    links: list[Link] = [*chain.ended, *([chain.living] if chain.living else [])]
    by_id = {link.id: link for link in links}
    successors = {link.successor for link in links if isinstance(link, EndedTask)}
    steps: list[Step] = []
    for link in links:
        if link.id == link.origin:
            steps.append(_added(link, names))
        elif link.id not in successors:
            steps.append(_continued(link, names))
        steps += _made_available(link, now_ms, names)
        if isinstance(link, EndedTask):
            # Not simply the next link: a reduced history has gaps.
            steps.append(_ended(link, by_id.get(link.successor) if link.successor else None, names))
    first, last = links[0], links[-1]
    end_ms = last.ended_at_ms if isinstance(last, EndedTask) else now_ms
    return Story(
        steps=steps[-LONGEST:],
        left_out=max(len(steps) - LONGEST, 0),
        lasted_ms=end_ms - first.created_at_ms,
        parts=list(_parts(steps[-LONGEST:], end_ms)),
    )


def _parts(steps: Sequence[Step], end_ms: int) -> Iterator[Part]:
    """Yield what the task was between its steps, to scale."""
    first_ms = steps[0].at_ms
    whole_ms = max(end_ms - first_ms, 1)
    for step, then_ms in zip(steps, [*(step.at_ms for step in steps[1:]), end_ms], strict=True):
        start = WHOLE * (step.at_ms - first_ms) // whole_ms
        length = WHOLE * (then_ms - first_ms) // whole_ms - start
        if length > 0 and step.look != "over":
            yield Part(look=step.look, start=start, length=length)


def _added(first: Link, names: Mapping[int, str]) -> Step:
    is_later = first.available_at_ms > first.made_at_ms
    return Step(
        look="scheduled" if is_later else "ready",
        what="Scheduled in" if is_later else "Added to",
        who=first.group,
        by=_client(first.owner, names),
        at_ms=first.made_at_ms,
        id=first.id,
        error=first.error,
    )


def _continued(link: Link, names: Mapping[int, str]) -> Step:
    """Describe the start of an id whose predecessor is unknown."""
    if link.leased:
        lease_ms = link.available_at_ms - link.made_at_ms
        what, who, look = "Claimed or renewed by", _client(link.owner, names), "claimed"
    else:
        lease_ms, what, who, look = None, "Continued under another id", "", "quiet"
    return Step(look=look, what=what, who=who, at_ms=link.made_at_ms, lease_ms=lease_ms, id=link.id, error=link.error)


def _made_available(link: Link, now_ms: int, names: Mapping[int, str]) -> Iterator[Step]:
    """Describe the event that time alone caused during the life of an id: the lease ended, or the task became ready."""
    end_ms = link.ended_at_ms if isinstance(link, EndedTask) else now_ms
    if not link.made_at_ms < link.available_at_ms <= end_ms:
        return
    if link.leased:
        yield Step(
            look="expired",
            what="Lease of",
            who=_client(link.owner, names) or "0",
            then="ran out",
            at_ms=link.available_at_ms,
            held_ms=link.available_at_ms - link.made_at_ms,
        )
    else:
        yield Step(look="ready", what="Became available", at_ms=link.available_at_ms)


def _ended(link: EndedTask, successor: Link | None, names: Mapping[int, str]) -> Step:
    """Describe the end of an id. `successor` is None when there is none, or when it is unknown."""
    what, look = WORDS[Ending(link.ending)]
    error = successor.error if successor is not None and successor.error != link.error else ""
    by = link.operator or _client(link.ended_by, names)
    is_move = successor is not None and successor.group != link.group
    if error and not link.operator:
        what, look = "Failed, moved to" if is_move else "Failed, reported by", "failed"
    if is_move and link.ending == Ending.REQUEUED:
        what = "Sent back to"
    if is_move and link.ending == Ending.CANCELLED:
        what = "Cancelled, kept in"
    if link.ending == Ending.MOVED and successor is None:
        what = "Moved by"  # The target is unknown.
    is_held = link.leased and link.available_at_ms > link.ended_at_ms
    available_since_ms = max(link.made_at_ms, link.available_at_ms)
    was_available = not is_held and available_since_ms <= link.ended_at_ms
    is_lease = successor is not None and link.ending in (Ending.CLAIMED, Ending.RENEWED)
    return Step(
        look=look,
        what=what,
        who=successor.group if successor and is_move else by or str(link.ended_by),
        by=by if is_move else "",
        at_ms=link.ended_at_ms,
        held_ms=link.ended_at_ms - link.made_at_ms if is_held else None,
        waited_ms=link.ended_at_ms - available_since_ms if was_available else None,
        lease_ms=successor.available_at_ms - link.ended_at_ms if successor and is_lease else None,
        id=link.successor,
        error=error,
        reason=link.reason,
    )


WORDS = {
    Ending.CLAIMED: ("Claimed by", "claimed"),
    Ending.RENEWED: ("Lease renewed by", "claimed"),
    Ending.CHANGED: ("Changed by", "quiet"),
    Ending.MOVED: ("Moved to", "quiet"),
    Ending.GIVEN_BACK: ("Given back by", "ready"),
    Ending.REQUEUED: ("Requeued by", "ready"),
    Ending.DELETED: ("Deleted by", "over"),
    Ending.PURGED: ("Purged by", "over"),
    Ending.CANCELLED: ("Cancelled by", "over"),
}


def _client(owner: int, names: Mapping[int, str]) -> str:
    """Return the name of a client, or its number; empty for 0, which is no particular client."""
    return names.get(owner, str(owner)) if owner else ""
