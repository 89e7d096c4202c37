"""Filters and tags of the console's templates. The formats are in console/words.py; nothing here is marked safe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.http import HttpRequest
from django.shortcuts import resolve_url

from taskstore.types.bulk import ACTIONS, BulkAction
from taskstore.types.tasks import State
from taskstore.units import ago, duration, number, size

from ..access import accounts, policy, sessions
from ..access.people import name_of
from ..access.policy import Action
from ..console import links, operations, pages, payload, schedules, words
from ..console.words import status_word
from ..models import Client, SavedSearch
from ..reading.clients import MOST_LISTED
from ..reading.exporting import Format
from ..reading.pages import Row
from ..reading.saved_searches import saved_by
from ..reading.search.grammar import label_term, tokens_of
from ..schedules import Past

register = template.Library()

register.filter("number", number)
register.filter("sentences", words.sentences)
register.filter("thousands", words.thousands)
register.filter("rate", words.rate)
register.filter("size", size)
register.filter("duration", duration)
register.filter("status_word", status_word)

FEW_LABELS = 3
SCREENS = (
    ("tasks_app:overview", "Overview", "o", Action.SEE),
    ("tasks_app:failed", "Failed", "f", Action.SEE),
    ("tasks_app:jobs", "Jobs", "j", Action.SEE),
    ("tasks_app:commands", "Commands", "l", Action.SEE),
    ("tasks_app:batches", "Batches", "t", Action.SEE),
    ("tasks_app:schedules", "Schedules", "c", Action.SEE),
    ("tasks_app:workers", "Workers", "w", Action.SEE),
    ("tasks_app:operations", "Operations", "b", Action.SEE),
    ("tasks_app:audit", "Audit", "a", Action.OPERATE),
    ("tasks_app:settings", "Settings", "s", Action.ADMINISTER),
)


@register.simple_tag(takes_context=True)
def screens(context: Any) -> Sequence[tuple[str, str, str]]:
    """Return the screens of the navigation: the names of their URLs, their labels, and their keys after `g`."""
    user = context["request"].user
    return [(name, word, key) for name, word, key, action in SCREENS if policy.may(user, action)]


@register.filter
def is_on(request: HttpRequest, screen: str) -> bool:
    """Return whether the page is this screen or below it."""
    address = resolve_url(screen)
    return request.path == address or request.path.startswith(f"{address}/")


@register.filter
def ms(at: datetime) -> int:
    """Return milliseconds since the Epoch, for `when`."""
    return round(at.timestamp() * 1_000)


@register.filter
def milliseconds(value: float) -> str:
    """Format a duration in milliseconds."""
    return duration(round(value))


@register.filter
def seconds(value: float) -> str:
    """Format a duration in seconds, in its two largest units."""
    return duration(round(value * 1_000))


@register.filter
def span(time: timedelta) -> str:
    """Format a timedelta in its two largest units."""
    return duration(round(time.total_seconds() * 1_000))


@register.simple_tag(takes_context=True)
def saved_searches(context: Any) -> Sequence[SavedSearch]:
    """Return the reader's saved searches; none on pages without a sign-in, such as error pages."""
    user = context["request"].user
    return saved_by(user) if user.is_authenticated else []


@register.filter
def named(searches: Sequence[SavedSearch], q: str) -> str:
    """Return the name of this saved search; empty when it is not saved."""
    return next((each.name for each in searches if each.q == q), "")


@register.filter
def pairs(text: str) -> list[tuple[str, str]]:
    """Split names with their labels: `entered:in left:out`."""
    return [(name, word) for name, _, word in (each.partition(":") for each in text.split())]


@register.filter
def parts(name: str) -> list[str]:
    """Split a name behind each `/` and `.`, where a line may end."""
    return re.findall(r"[^/.]*[/.]|[^/.]+$", name)


@register.filter
def count(counts: Any, state: State) -> int:
    """Return the number of tasks in this state."""
    return int(getattr(counts, state))


@register.filter
def preview(row: Row) -> str:
    """Return the beginning of a task's data; empty when the reader may not see it."""
    return payload.one_line(row.data, row.size or 0) if row.data is not None else ""


@register.filter
def labelled(rows: Sequence[Row]) -> bool:
    """Return whether any of the tasks has a label."""
    return any(row.labels for row in rows)


@register.filter
def labels_borne(rows: Sequence[Row]) -> list[str]:
    """Return the labels of these tasks, each once, in the form that a label field takes."""
    terms = {label_term(name, value) for row in rows for name, value in row.labels.items()}
    return sorted(term.removeprefix("label.") for term in terms)


@register.inclusion_tag("tasks_app/_labels.html")
def labels(borne: Mapping[str, str], q: str = "", task: int | None = None) -> dict[str, Any]:
    """Show labels by name, each with a link that adds it to the search `q`, unless `q` has it already.

    With `task`, shows only a few, as in a row of a list, and links to the task for the others.
    """
    shown = sorted(borne.items())[: FEW_LABELS if task else None]
    asked = tokens_of(q)
    chips = [
        (name, value, "" if label_term(name, value) in asked else links.label_page(name, value, q))
        for name, value in shown
    ]
    return {"chips": chips, "more": len(borne) - len(shown), "task": task}


register.simple_tag(links.to)
register.filter("address", links.address)
register.simple_tag(links.folder_page, name="folder_url")
register.simple_tag(links.commands_page_of, name="commands_url_of")
register.simple_tag(links.member_search)
register.simple_tag(links.holder_search)
register.simple_tag(links.held_page, name="held_url")
register.simple_tag(links.label_page, name="label_url")
register.simple_tag(links.signature_page, name="signature_url")
register.simple_tag(links.confirm_signature_page, name="confirm_signature_url")
register.simple_tag(links.filter_of_group, name="filter_of_group")
register.simple_tag(pages.live_address)
register.simple_tag(pages.sign_in_page)
register.simple_tag(sessions.can_be_ended, name="sessions_can_be_ended")


@register.inclusion_tag("tasks_app/_owner.html", takes_context=True)
def owner(context: Any, client_id: int) -> dict[str, object]:
    """Show a client by its name, if it has one, with a link to its page."""
    request = context["request"]
    if not hasattr(request, "names_of_clients"):  # A page shows up to a hundred.
        request.names_of_clients = dict(Client.objects.exclude(name="").values_list("pk", "name")[:MOST_LISTED])
    return {"id": client_id, "name": request.names_of_clients.get(client_id, "")}


@register.inclusion_tag("tasks_app/_icon.html")
def past_icon(past: Past) -> dict[str, str]:
    """Show the icon of what became of a due time."""
    return {"name": schedules.LOOKS.get(past.look, "done")}


@register.simple_tag
def bulk_actions() -> list[BulkAction]:
    """Return the bulk actions."""
    return list(ACTIONS.values())


@register.inclusion_tag("tasks_app/_confirm_button.html")
def confirm_button(
    words: str, verb: str, group: str, state: str | None = None, task: int | None = None, key: str = ""
) -> dict[str, object]:
    """Show the button that opens the confirmation of an action: a dialog, or a page without scripts.

    `key`: its keyboard shortcut.
    """
    url = links.confirm_page(verb, group, state=state, task=task)
    return {"words": words, "is_destructive": ACTIONS[verb].is_destructive, "url": url, "key": key}


@register.inclusion_tag("tasks_app/_confirm_button.html")
def commands_button(
    words: str, verb: str, project: str, status: str | None = None, task: int | None = None, key: str = ""
) -> dict[str, str]:
    """Show the button that opens the confirmation of a change of one command, or of all that it applies to."""
    which = {"all": 1} if task is None else {"id": task}
    url = links.to("confirm_commands", verb=verb, project=project, status=status, **which)
    return {"words": words, "url": url, "key": key}


@register.inclusion_tag("tasks_app/_exports.html")
def exports(q: str) -> dict[str, Any]:
    """Show links to the exports of a search, one for each format; none for an empty search."""
    return {"files": [(each.upper(), links.to("export", q=q, format=each)) for each in Format] if q else []}


@register.simple_tag(takes_context=True)
def typed(context: Any, what: str, **of: str) -> str:
    """Return an example command; see console/links.py."""
    return links.example(context["request"], what, **of)


@register.inclusion_tag("tasks_app/_command.html", takes_context=True)
def example(context: Any, what: str, **of: str) -> dict[str, str]:
    """Show an example command to copy."""
    return {"command": typed(context, what, **of)}


@register.inclusion_tag("tasks_app/_icon.html")
def icon(name: str) -> dict[str, str]:
    """Show an icon of static/icons.svg, beside the word with the same meaning."""
    return {"name": name}


@register.inclusion_tag("tasks_app/_state.html")
def state(name: str) -> dict[str, str]:
    """Show a state with its icon, word and colour."""
    return {"name": name}


@register.inclusion_tag("tasks_app/_id.html")
def task_id(number: int) -> dict[str, int]:
    """Show an id in groups of three digits, which are copied without gaps."""
    return {"number": number}


@register.inclusion_tag("tasks_app/_when.html")
def when(at_ms: int, now_ms: int, form: str = "") -> dict[str, Any]:
    """Show a time, with the exact one on hover and focus.

    `form` empty: relative to now; "lease": a countdown; "clock": the time of day; "exact": date and time;
    "stamp": as much as is needed today. static/js/time.js converts it to the reader's zone and keeps it current.
    """
    exact = words.exact(at_ms)
    return {
        "text": {"lease": words.lease(at_ms, now_ms), "clock": words.clock(at_ms), "exact": exact, "stamp": exact}.get(
            form, ago(at_ms, now_ms)
        ),
        "exact": exact,
        "iso": words.iso(at_ms),
        "form": form,
    }


@register.simple_tag
def iso_now() -> str:
    """Return the time of this server, so that a page does not depend on the browser's clock."""
    return words.iso(words.now_ms())


@register.simple_tag(takes_context=True)
def theme(context: Any) -> str:
    """Return the theme of this browser: "light", "dark", or "system"."""
    request = context.get("request")
    chosen = request.COOKIES.get("theme") if request else None
    return chosen if chosen in ("light", "dark") else "system"


@register.simple_tag(takes_context=True)
def my_operations(context: Any) -> Sequence[Mapping[str, Any]]:
    """Return the reader's operations that run or have just ended."""
    user = context["request"].user
    return operations.recent_of(name_of(user)) if policy.may(user, Action.OPERATE) else []


@register.simple_tag(takes_context=True)
def may(context: Any, action: str) -> bool:
    """Return whether the reader may do this."""
    return policy.may(context["request"].user, Action(action))


@register.simple_tag(takes_context=True)
def role(context: Any) -> str:
    """Describe the reader's rights in a few words."""
    rights = accounts.rights_from(policy.actions_of(context["request"].user))
    if rights.role == accounts.ADMIN:  # It includes the other rights.
        return rights.role
    return f"{rights.role or 'no role yet'}{', sees data' * rights.sees_payloads}{', commands' * rights.commands}"
