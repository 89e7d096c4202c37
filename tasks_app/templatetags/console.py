"""The words of the console's templates. What they say is in console/words.py; nothing here is marked safe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django import template

from .. import policy
from ..console import group_rows, links, payload, words
from ..listing import Row
from ..operations import State
from ..policy import Action

register = template.Library()

register.filter("number", words.number)
register.filter("thousands", words.thousands)
register.filter("rate", words.rate)
register.filter("size", words.size)
register.filter("duration", words.duration)
register.filter("drain", group_rows.drained)

SCREENS = (
    ("console:overview", "Overview", "o", Action.SEE),
    ("console:failed", "Failed", "f", Action.SEE),
    ("console:workers", "Workers", "w", Action.SEE),
    ("console:audit", "Audit", "a", Action.OPERATE),
)


@register.simple_tag(takes_context=True)
def screens(context: Any) -> Sequence[tuple[str, str, str]]:
    """The screens that every page leads to: their addresses' names, the words for them, and the keys after `g`."""
    user = context["request"].user
    return [(name, word, key) for name, word, key, action in SCREENS if policy.may(user, action)]


@register.filter
def pairs(text: str) -> list[tuple[str, str]]:
    """Names and the words for them: `entered:in left:out`."""
    return [(name, word) for name, _, word in (each.partition(":") for each in text.split())]


@register.filter
def count(counts: Any, state: State) -> int:
    """The number of tasks in this state."""
    return int(getattr(counts, state))


@register.filter
def preview(row: Row) -> str:
    """The beginning of a task's data; empty when the person may not see it."""
    return payload.one_line(row.data, row.size or 0) if row.data is not None else ""


register.simple_tag(links.group_page, name="group_url")
register.simple_tag(links.folder_page, name="folder_url")
register.simple_tag(links.add_page, name="add_url")
register.simple_tag(links.held_page, name="held_url")
register.simple_tag(links.signature_page, name="signature_url")
register.simple_tag(links.rates_part, name="rates_url")
register.simple_tag(links.pause_page, name="pause_url")
register.simple_tag(links.facts_part, name="facts_url")


@register.inclusion_tag("console/_confirm_button.html")
def confirm_button(
    words: str, verb: str, group: str, state: str | None = None, task: int | None = None, key: str = ""
) -> dict[str, str]:
    """What opens the question before a verb is done to a group or a task: a dialog, or a page without scripts.

    `key`: the key that presses it.
    """
    return {"words": words, "verb": verb, "url": links.confirm_page(verb, group, state=state, task=task), "key": key}


@register.inclusion_tag("console/_icon.html")
def icon(name: str) -> dict[str, str]:
    """A glyph of static/icons.svg, beside the word that says the same."""
    return {"name": name}


@register.inclusion_tag("console/_state.html")
def state(name: str) -> dict[str, str]:
    """A state: glyph, word and colour together."""
    return {"name": name}


@register.inclusion_tag("console/_id.html")
def task_id(number: int) -> dict[str, int]:
    """An id in groups of three digits, which are copied without gaps."""
    return {"number": number}


@register.inclusion_tag("console/_when.html")
def when(at_ms: int, now_ms: int, form: str = "") -> dict[str, Any]:
    """A time, exact on hover and focus.

    `form` empty: relative to now; "lease": as a countdown; "clock": the time of day; "exact": all of it;
    "stamp": all that is needed today. static/js/time.js turns them into the reader's own zone and keeps them right.
    """
    exact = words.exact(at_ms)
    return {
        "text": {"clock": words.clock(at_ms), "exact": exact, "stamp": exact}.get(form, words.relative(at_ms, now_ms)),
        "exact": exact,
        "iso": words.iso(at_ms),
        "form": form,
    }


@register.simple_tag
def iso_now() -> str:
    """The time of this server, so that a page does not depend on the clock of the browser."""
    return words.iso(time.time_ns() // 1_000_000)


@register.simple_tag(takes_context=True)
def theme(context: Any) -> str:
    """The theme that this browser has chosen: "light", "dark", or "system"."""
    request = context.get("request")
    chosen = request.COOKIES.get("theme") if request else None
    return chosen if chosen in ("light", "dark") else "system"


@register.simple_tag(takes_context=True)
def may(context: Any, action: str) -> bool:
    """Whether the person who looks may do this."""
    return policy.may(context["request"].user, policy.Action(action))


@register.simple_tag(takes_context=True)
def role(context: Any) -> str:
    """What the person who looks is here, in a word or two."""
    user = context["request"].user
    return "admin" if user.is_superuser else ", ".join(user.groups.values_list("name", flat=True)) or "no role yet"
