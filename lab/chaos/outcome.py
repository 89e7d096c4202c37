"""What came of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .checker import entries_about, violations
from .history import Event, History
from .loss import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Something measured, or counted, that may have a limit."""

    name: str
    value: float
    limit: float | None = None
    unit: str = "s"
    is_least: bool = False  # The limit is a lower one.

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
    entries: Sequence[Event] = ()  # The requests that it is about.


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneResult:
    operations: int  # Those that were answered.
    faults: int
    in_doubt: int = 0
    violations: Sequence[Violation] = ()
    figures: Sequence[Figure] = ()

    @property
    def bound(self) -> float:
        """Where nothing went wrong: in how many of all operations something may, at most, with 95 % confidence."""
        return 3 / max(self.operations, 1)


def outcome_of(
    history: History, *, faults: int, problems: Sequence[str] = (), figures: Sequence[Figure] = ()
) -> SceneResult:
    """Check the history. `problems`: what the scene itself found wrong."""
    found = [Violation(text=text, entries=entries_about(text, history)) for text in violations(history)]
    return SceneResult(
        operations=sum(request.status == 200 for request in history.requests),
        faults=faults,
        in_doubt=len(history.in_doubt),
        violations=[*(Violation(text=text) for text in problems), *found],
        figures=figures,
    )


def outcome_with(loss: Loss, *, problems: Sequence[str] = (), figures: Sequence[Figure] = ()) -> SceneResult:
    """Check what is left, and that nothing else is lost than may be."""
    lost = Figure(name="changes that were answered and are lost", value=len(loss.lost), unit="")
    reach = Figure(name="sent before the end, the first of them by", value=loss.reach_s)
    late = Figure(name="requests that named what was lost", value=len(loss.late), unit="")
    return outcome_of(
        loss.left,
        faults=len(loss.returns),
        problems=[*problems, *loss.violations()],
        figures=[lost, reach, late, *figures],
    )
