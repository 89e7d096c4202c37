"""Charts and sparklines: their points, as JSON and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from ..access.policy import Action
from ..database.time_limits import TookTooLong, at_most
from ..models import Task
from ..reading.rates import PERCENTILES, Percentiles, Series, series_of, series_of_all
from . import parameters as reading
from .pages import page
from .replica import from_replica

HEIGHT = 20


def points_of(numbers: Sequence[int]) -> str:
    """The points of a line one step for each number wide, the largest at its top; empty for too few numbers."""
    if len(numbers) < 2:
        return ""
    most = max(*numbers, 1)
    return " ".join(f"{place},{_tenths(HEIGHT - HEIGHT * value / most)}" for place, value in enumerate(numbers))


def _tenths(height: float) -> str:
    # Short, because there are six thousand of them on a page.
    return f"{height:.1f}".removesuffix(".0")


LIMIT_S = 5.0


@require_safe
@page(Action.SEE)
@from_replica
def rates(request: HttpRequest) -> HttpResponse:
    """The lines of the charts of a group, or of all groups, by their names; times in seconds since the Epoch."""
    span = reading.span_of(request.GET)
    group = reading.group_of(request.GET) if "name" in request.GET else None
    try:
        with at_most(LIMIT_S, using=Task.objects.db):
            series = series_of_all(span) if group is None else series_of(group, span)
    except TookTooLong:
        return JsonResponse({"detail": "The database took too long."}, status=503)
    return JsonResponse(_lines(series))


def _lines(series: Series) -> dict[str, Any]:
    return {
        "times": [at_ms // 1_000 for at_ms in series.starts_ms],
        **series.per_minute,
        "backlog": series.backlog,
        **_by_percentile("wait", series.waits),
        **_by_percentile("run", series.runs),
    }


def _by_percentile(name: str, found: list[Percentiles]) -> dict[str, list[int | None]]:
    return {
        f"{name}{percent}": [times[place] if times else None for times in found]
        for place, percent in enumerate(PERCENTILES)
    }
