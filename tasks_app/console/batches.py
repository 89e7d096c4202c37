"""The pages of batches: the list, a batch with those around it, and the changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url

from taskstore.types.batches import AFTER_BATCH, LETTERS, Batch, BatchesRequest

from ..access.policy import Action, may
from ..alerts.diagnosis import of_batch, of_open_batches
from ..bulk.starting import delete_batch
from ..control import batches as control
from ..control.batches import Tab
from ..core.actors import Actor
from ..models import Batch as StoredBatch
from ..models import Task
from ..reading.clients import seen
from ..reading.search.grammar import label_term
from . import parameters
from .pages import actor_for, ask_first, asks, changes, done, existing, reads, user_of, without_empty_fields

PAGE = 50
MOST_SHOWN, MOST_STEPS = 100, 10  # Batches of a tree, and what one of them adds.
LENGTH = 1_000  # Of the line of a batch in the picture of its tree.


@reads(Action.SEE)
def batches(request: HttpRequest) -> HttpResponse:
    """List the batches that match the query, newest first, with what the open ones wait for."""
    if "" in request.GET.dict().values():
        return redirect(without_empty_fields(request))
    tab, name = parameters.tab_of(request.GET), parameters.filter_of(request.GET)
    after = request.GET.get("after")
    last = parameters.whole_number("after", after) if after else None
    page = control.batches_in(BatchesRequest(after=last, limit=PAGE), tab=tab, name=name)
    waiting = of_open_batches([each.id for each in page.batches if each.closed_at_ms is None], seen())
    context = {
        "batches": [(batch, waiting.get(batch.id)) for batch in page.batches],
        "next": page.after,
        "is_first": last is None,
        "tab": tab,
        "tabs": [None, *Tab],
        "filter": name,
        "now_ms": Task.objects.now_ms(),
    }
    return render(request, "tasks_app/batches.html", context)


@reads(Action.SEE)
def batch(request: HttpRequest, batch_id: int) -> HttpResponse:
    found = existing(control.batch_of(batch_id))
    diagnosis, members = of_batch(found, seen())
    row = StoredBatch.objects.get(pk=batch_id)
    now_ms = Task.objects.now_ms()
    # What follows it, if that is a batch of its own: the parts of a plan have the paths of those that they follow.
    follows = StoredBatch.objects.filter(root=row.root, path__in=[row.path + letter for letter in LETTERS])
    before = StoredBatch.objects.filter(root=row.root, path=row.path[:-1]).exclude(pk=batch_id)
    has_added = Task.objects.get_queryset().bearing(AFTER_BATCH, str(batch_id)).exists()
    context = {
        "batch": found,
        "diagnosis": diagnosis,
        "members": members,
        "tree": tree_of(batch_id, now_ms),
        "follows": follows.order_by("pk"),
        "before": before.order_by("pk").first() if row.path.endswith(LETTERS) else None,
        "added": label_term(AFTER_BATCH, str(batch_id)) if has_added else "",  # What has ended is not found.
        "may_operate": may(user_of(request), Action.OPERATE),
        "now_ms": now_ms,
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
    start: int = 0  # When it was open, as a part of the LENGTH of the whole tree's time.
    length: int = 0
    took_ms: int = 0


def tree_of(batch_id: int, now_ms: int) -> Node | None:
    """Return the outermost batch around this one, with those within it and what they plan; None if it is alone."""
    top = batch_id
    for _ in range(MOST_SHOWN):
        parent = StoredBatch.objects.filter(pk=top).values_list("parent", flat=True).first()
        if not parent:
            break
        top = parent
    rows = [*StoredBatch.objects.tree(top).counted().order_by("pk")[:MOST_SHOWN]]
    first_ms = min((row.created_at_ms for row in rows), default=0)
    whole_ms = max(max((row.closed_at_ms or now_ms for row in rows), default=0) - first_ms, 1)
    nodes: dict[int, Node] = {}
    for row in rows:
        name, took_ms = row.name or ("batch" if row.mark else "step"), (row.closed_at_ms or now_ms) - row.created_at_ms
        start = LENGTH * (row.created_at_ms - first_ms) // whole_ms
        length = max(LENGTH * took_ms // whole_ms, LENGTH // 100)
        node = nodes[row.pk] = Node(name, row.told(), start=min(start, LENGTH - length), length=length, took_ms=took_ms)
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
