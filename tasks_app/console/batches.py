"""The pages of batches: the list, a batch with those around it, and the changes."""

from __future__ import annotations

from dataclasses import dataclass, field

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
MOST_SHOWN, MOST_STEPS = 100, 10  # Batches of a tree, and what one of them adds.


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
    found = existing(control.batch_of(batch_id))
    context = {
        "batch": found,
        "tree": tree_of(batch_id),
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

    following = next((tasks for word, tasks in control.plans_of(StoredBatch.objects.get(pk=batch_id))), "")
    context = {"batch": found, "next": following}
    return ask_first(request, "complete_batch", f"Complete batch {batch_id}", context, do)


@asks(Action.OPERATE)
def delete(request: HttpRequest, batch_id: int) -> HttpResponse:
    found = existing(control.batch_of(batch_id))

    def do(actor: Actor) -> HttpResponse:
        operation = existing(delete_batch(batch_id, actor))
        return done(request, f"Deletes batch {batch_id}.", resolve_url("tasks_app:operation", operation.pk))

    return ask_first(request, "delete_batch", f"Delete batch {batch_id}", {"batch": found}, do)


# ---- The tree of a batch: those that it is within, those within it, and what they add


@dataclass(frozen=True, slots=True)
class Node:
    """A batch of the tree, or what one will add (`batch` is None)."""

    text: str
    batch: Batch | None = None
    below: list[Node] = field(default_factory=list)


def tree_of(batch_id: int) -> Node | None:
    """Return the outermost batch around this one, with those within it and what they plan; None if it is alone."""
    top = batch_id
    for _ in range(MOST_SHOWN):
        parent = StoredBatch.objects.filter(pk=top).values_list("parent", flat=True).first()
        if not parent:
            break
        top = parent
    nodes: dict[int, Node] = {}
    for row in StoredBatch.objects.tree(top).counted().order_by("pk")[:MOST_SHOWN]:
        node = nodes[row.pk] = Node(row.name or ("batch" if row.mark else "step"), row.told())
        if row.parent in nodes:
            nodes[row.parent].below.append(node)
        if not (row.closed_at_ms or row.refuses):
            # Batches are newer than those that they are within: what is planned comes after them.
            planned = control.plans_of(row)
            nodes[-row.pk] = Node("", below=[Node(f"{word}: {tasks}") for word, tasks in planned[:MOST_STEPS]])
            if more := planned[MOST_STEPS:]:
                nodes[-row.pk].below.append(Node(f"and {len(more)} more"))
    for number, node in nodes.items():
        node.below.extend(nodes[-number].below if -number in nodes and number > 0 else ())
    return nodes[top] if top in nodes and nodes[top].below else None
