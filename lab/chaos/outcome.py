"""The result of a scene: operations, violations, and measured figures with their goals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from .checker import entries_about, violations
from .history import Event, History

MOST_ENTRIES = 20  # Of a violation.


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured or counted value with an optional goal."""

    name: str
    value: float
    limit: float | None = None
    unit: str = "s"
    is_least: bool = False  # The limit is a lower bound.

    @property
    def is_met(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    def __str__(self) -> str:
        measured = f"{self.name} {self.value:.6g} {self.unit}".rstrip()
        if self.limit is None:
            return measured
        word = "at least" if self.is_least else "at most"
        verdict = "" if self.is_met else ": MISSED"
        return f"{measured} (goal: {word} {self.limit:.6g}{verdict})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    text: str
    entries: Sequence[Event] = ()  # The requests involved.


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneResult:
    operations: int  # Answered requests.
    faults: int
    in_doubt: int = 0
    violations: Sequence[Violation] = ()
    figures: Sequence[Figure] = ()


def outcome_of(
    history: History, *, faults: int, problems: Sequence[str] = (), figures: Sequence[Figure] = ()
) -> SceneResult:
    """Check the history. `problems`: violations found by the scene itself."""
    found = [Violation(text=text, entries=entries_about(text, history)) for text in violations(history)]
    return SceneResult(
        operations=sum(request.status == 200 for request in history.requests),
        faults=faults,
        in_doubt=len(history.in_doubt),
        violations=[*(Violation(text=text) for text in problems), *found],
        figures=figures,
    )


def in_full(violation: Violation) -> str:
    """Return the text of a violation with its requests, one per line."""
    entries = [json.dumps(asdict(event)) for event in violation.entries[:MOST_ENTRIES]]
    more = len(violation.entries) - len(entries)
    return "\n    ".join([violation.text, *entries, *([f"and {more} more"] if more else [])])
