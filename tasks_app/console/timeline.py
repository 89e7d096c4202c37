"""What happened to a task, from the chain of its ids, as a story for people. Pure; nothing here is HTML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taskstore.types.tasks import Ending

from ..models import EndedTask, Task
from ..reading.history import Chain

LONGEST = 200  # Steps that are told; a task may have been renewed for days.

Link = EndedTask | Task  # One id of the chain.


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened: `what` `who` `then`, at a time, with notes that say more."""

    look: str  # Whose colour it has: a state, or "quiet" or "over".
    what: str
    who: str = ""
    then: str = ""  # The end of the sentence, where it goes on after `who`.
    by: str = ""  # Where `who` is not already the one who did it.
    at_ms: int
    held_ms: int | None = None  # How long its owner had held it by then.
    waited_ms: int | None = None  # How long it had been available by then.
    lease_ms: int | None = None
    id: int | None = None  # That the task had from then on.
    error: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The steps in order. `left_out` of them are not told, because they are too many."""

    steps: list[Step]
    left_out: int
    lasted_ms: int


def story_of(chain: Chain, now_ms: int) -> Story:
    """Everything that happened to the task so far."""
    links: list[Link] = [*chain.ended, *([chain.living] if chain.living else [])]
    steps = list(_steps(links, now_ms))
    first, last = links[0], links[-1]
    return Story(
        steps=steps[-LONGEST:],
        left_out=max(len(steps) - LONGEST, 0),
        lasted_ms=(last.ended_at_ms if isinstance(last, EndedTask) else now_ms) - first.created_at_ms,
    )


def _steps(links: list[Link], now_ms: int) -> Iterator[Step]:
    by_id = {link.id: link for link in links}
    successors = {link.successor for link in links if isinstance(link, EndedTask)}
    for link in links:
        if link.id == link.origin:
            yield _added(link)
        elif link.id not in successors:
            yield _went_on(link)
        yield from _while_it_lay(link, now_ms)
        if isinstance(link, EndedTask):
            # Not simply the next link: where history was reduced for a while there are gaps.
            yield _ended(link, by_id.get(link.successor) if link.successor else None)


def _added(first: Link) -> Step:
    is_later = first.available_at_ms > first.made_at_ms
    return Step(
        look="scheduled" if is_later else "ready",
        what="Scheduled in" if is_later else "Added to",
        who=first.group,
        by=_client(first.owner),
        at_ms=first.made_at_ms,
        id=first.id,
        error=first.error,
    )


def _went_on(link: Link) -> Step:
    """The making of an id whose predecessor is not known."""
    if link.leased:
        lease_ms = link.available_at_ms - link.made_at_ms
        what, who, look = "Claimed or renewed by", _client(link.owner), "claimed"
    else:
        lease_ms, what, who, look = None, "Continued under another id", "", "quiet"
    return Step(look=look, what=what, who=who, at_ms=link.made_at_ms, lease_ms=lease_ms, id=link.id, error=link.error)


def _while_it_lay(link: Link, now_ms: int) -> Iterator[Step]:
    """What happened by the clock alone, between the making of an id and its end."""
    end_ms = link.ended_at_ms if isinstance(link, EndedTask) else now_ms
    if not link.made_at_ms < link.available_at_ms <= end_ms:
        return
    if link.leased:
        yield Step(
            look="expired",
            what="Lease of",
            who=str(link.owner),
            then="ran out",
            at_ms=link.available_at_ms,
            held_ms=link.available_at_ms - link.made_at_ms,
        )
    else:
        yield Step(look="ready", what="Became available", at_ms=link.available_at_ms)


def _ended(link: EndedTask, successor: Link | None) -> Step:
    """What made an end of this id, and its successor if there is one that is known."""
    what, look = WORDS[Ending(link.ending)]
    error = successor.error if successor is not None and successor.error != link.error else ""
    by = link.operator or _client(link.ended_by)
    is_move = successor is not None and successor.group != link.group
    if error and not link.operator:
        what, look = "Failed, moved to" if is_move else "Failed, reported by", "failed"
    if is_move and link.ending == Ending.REQUEUED:
        what = "Sent back to"
    if link.ending == Ending.MOVED and successor is None:
        what = "Moved by"  # Where to is not known.
    is_held = link.leased and link.available_at_ms > link.ended_at_ms
    return Step(
        look=look,
        what=what,
        who=successor.group if successor and is_move else by or str(link.ended_by),
        by=by if is_move else "",
        at_ms=link.ended_at_ms,
        held_ms=link.ended_at_ms - link.made_at_ms if is_held else None,
        waited_ms=None if is_held else _waited_ms(link),
        lease_ms=_lease_ms(link, successor),
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
}


def _client(owner: int) -> str:
    """The number of a client; 0 stands for nobody in particular."""
    return str(owner) if owner else ""


def _waited_ms(link: EndedTask) -> int | None:
    """How long it had been available; None when it never was."""
    since_ms = max(link.made_at_ms, link.available_at_ms)
    return link.ended_at_ms - since_ms if since_ms <= link.ended_at_ms else None


def _lease_ms(link: EndedTask, successor: Link | None) -> int | None:
    if link.ending not in (Ending.CLAIMED, Ending.RENEWED) or successor is None:
        return None
    return successor.available_at_ms - link.ended_at_ms
