"""The pages of batches: the list, a batch with those around it, and the changes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url

from taskstore.types.batches import Batch, BatchesRequest

from ..access.policy import Action, may
from ..bulk.starting import delete_batch
from ..control import batches as control
from ..core.actors import Actor
from ..models import Batch as StoredBatch
from ..models import Task
from . import parameters
from .pages import actor_for, ask_first, asks, changes, done, existing, reads, user_of

PAGE = 50
MOST_DRAWN = 100  # Batches of a tree.
LONGEST_NAME = 36
WIDTH, HEIGHT, STEP_X, STEP_Y = 360, 46, 28, 58


@reads(Action.SEE)
def batches(request: HttpRequest) -> HttpResponse:
    is_open = {"yes": True, "no": False}.get(request.GET.get("open", ""))
    after = request.GET.get("after")
    last = parameters.whole_number("after", after) if after else None
    page = control.batches_in(BatchesRequest(open=is_open, after=last, limit=PAGE))
    context = {"batches": page.batches, "next": page.after, "is_first": last is None, "is_open": is_open}
    return render(request, "tasks_app/batches.html", context | {"now_ms": Task.objects.now_ms()})


@reads(Action.SEE)
def batch(request: HttpRequest, batch_id: int) -> HttpResponse:
    found, nodes = existing(control.batch_of(batch_id)), tree_of(batch_id)
    context = {
        "batch": found,
        "nodes": nodes,
        "width": max((node.x for node in nodes), default=0) + WIDTH + 2,
        "height": len(nodes) * STEP_Y - STEP_Y + HEIGHT + 2,
        "may_operate": may(user_of(request), Action.OPERATE),
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/batch.html", context)


@changes(Action.OPERATE)
def release(request: HttpRequest, batch_id: int) -> HttpResponse:
    before = existing(control.batch_of(batch_id))
    now = existing(control.release(batch_id, actor_for(request)))
    said = f"Took over batch {batch_id}." if before.lost_rights else f"Released batch {batch_id}."
    if now.problem:
        said = f"Batch {batch_id} still could not add what it plans."
    return done(request, said, resolve_url("tasks_app:batch", batch_id))


@asks(Action.OPERATE)
def complete(request: HttpRequest, batch_id: int) -> HttpResponse:
    found = existing(control.batch_of(batch_id))

    def do(actor: Actor) -> HttpResponse:
        now = existing(control.complete(batch_id, actor))
        said = f"Batch {batch_id} counts failed tasks as succeeded."
        if now.closed_at_ms is not None:
            said = f"Batch {batch_id} has {now.state}."
        return done(request, said, resolve_url("tasks_app:batch", batch_id))

    plans = control.plans_of(StoredBatch.objects.get(pk=batch_id))
    context = {"batch": found, "then": plans.get("then", "")}
    return ask_first(request, "complete_batch", f"Complete batch {batch_id}", context, do)


@asks(Action.OPERATE)
def delete(request: HttpRequest, batch_id: int) -> HttpResponse:
    found = existing(control.batch_of(batch_id))

    def do(actor: Actor) -> HttpResponse:
        operation = existing(delete_batch(batch_id, actor))
        return done(request, f"Deletes batch {batch_id}.", resolve_url("tasks_app:operation", operation.pk))

    return ask_first(request, "delete_batch", f"Delete batch {batch_id}", {"batch": found}, do)


# ---- The picture of a batch: those that it is within, those within it, and what they add


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A batch of the picture, or what one will add (`batch` is None). A line leads from its upper one to it."""

    place: int
    depth: int
    upper: int | None  # The place of the node that it hangs on.
    text: str
    batch: Batch | None = None

    @property
    def x(self) -> int:
        return 1 + self.depth * STEP_X

    @property
    def y(self) -> int:
        return 1 + self.place * STEP_Y

    @property
    def line(self) -> str:
        """Return the line from the upper node, as a path of SVG; empty if there is none."""
        if self.upper is None:
            return ""
        left = self.x - STEP_X // 2
        return f"M{left} {1 + self.upper * STEP_Y + HEIGHT}V{self.y + HEIGHT // 2}H{self.x}"

    @property
    def done_width(self) -> int:
        """Return how wide the bar of ended members is."""
        total = self.batch.total if self.batch else 0
        return round((WIDTH - 24) * self.batch.ended / total) if self.batch and total else 0


def tree_of(batch_id: int) -> list[Node]:
    """Return the outermost batch around this one, and those within it, each below the one that it is within."""
    top = batch_id
    for _ in range(MOST_DRAWN):
        parent = StoredBatch.objects.filter(pk=top).values_list("parent", flat=True).first()
        if not parent:
            break
        top = parent
    rows: dict[int, Any] = {row.pk: row for row in StoredBatch.objects.counted().filter(pk=top)}
    level = list(rows)
    within: dict[int, list[int]] = defaultdict(list)
    while level and len(rows) < MOST_DRAWN:
        found = list(StoredBatch.objects.counted().filter(parent__in=level).order_by("pk")[: MOST_DRAWN - len(rows)])
        for row in found:
            within[row.parent].append(row.pk)
            rows[row.pk] = row
        level = [row.pk for row in found]
    nodes: list[Node] = []
    waiting: list[tuple[int, int, int | None]] = [(top, 0, None)] if top in rows else []
    while waiting:
        number, depth, upper = waiting.pop()
        row, place = rows[number], len(nodes)
        told = row.told()
        nodes.append(
            Node(
                place=place,
                depth=depth,
                upper=upper,
                text=_short(told.name or ("batch" if row.mark else "step")),
                batch=told,
            )
        )
        if told.closed_at_ms is None and not told.deleted:
            for word, planned in control.plans_of(row).items():
                nodes.append(Node(place=len(nodes), depth=depth + 1, upper=place, text=_short(f"{word}: {planned}")))
        waiting += [(child, depth + 1, place) for child in reversed(within[number])]
    return nodes


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
