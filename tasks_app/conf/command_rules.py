"""When a list is made of the new commands of a project, as TASKSTORE_COMMAND_LISTS says. Pure but for the setting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from django.conf import settings

from .retention import UNITS_MS, fits

MOST_COMMANDS = 1_000  # Of a list: their results are one task.
DEFAULT = "*=50/10min/1s"
RIGHT = (
    f"write PROJECT=COUNT/DURATION/AGE, such as {DEFAULT}, with a COUNT between 1 and {MOST_COMMANDS} and one of "
    f"{', '.join(UNITS_MS)} after each duration; a star in the project's name matches any characters"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRule:
    """When there are enough new commands of a project for a list; whichever comes first."""

    pattern: str  # Of names of projects; a star stands for any characters.
    count: int  # So many. A list never holds more.
    duration_s: int  # So long together, as is expected. A list never takes longer, unless it is one command alone.
    age_ms: int  # The oldest is that old.


def rule_of(project: str) -> ListRule:
    """The first rule that is about the project; that of the default when none is."""
    rules = [*rules_in(str(getattr(settings, "TASKSTORE_COMMAND_LISTS", DEFAULT))), *rules_in(DEFAULT)]
    return next(rule for rule in rules if fits(rule.pattern, project))


@cache  # There is one text, which is read for every round.
def rules_in(text: str) -> Sequence[ListRule]:
    """Rules that are written as `PROJECT=50/10min/1s` words. Raises ValueError that says which one is wrong."""
    return [_rule(word) for word in text.split()]


def _rule(word: str) -> ListRule:
    duration = rf"([0-9]{{1,9}})({'|'.join(UNITS_MS)})"
    found = re.fullmatch(rf"(.+)=([0-9]{{1,4}})/{duration}/{duration}", word, re.ASCII)
    if found is None or not 1 <= int(found[2]) <= MOST_COMMANDS or not int(found[3]):
        raise ValueError(f'"{word}" is not a rule: {RIGHT}')
    return ListRule(
        pattern=found[1],
        count=int(found[2]),
        duration_s=int(found[3]) * UNITS_MS[found[4]] // 1_000,
        age_ms=int(found[5]) * UNITS_MS[found[6]],
    )
