"""Charts and sparklines: their points as JSON and as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from ..access.policy import Action
from ..database.time_limits import TookTooLong, at_most
from ..models import Task
from ..reading.rates import PERCENTILES, Percentiles, series_of, series_of_all
from . import parameters
from .pages import page
from .replica import from_replica

HEIGHT = 20
LIMIT_S = 5.0


def points_of(numbers: Sequence[int]) -> str:
    """Return the points of an SVG line, one unit per number, the largest at the top; empty for fewer than two."""
    if len(numbers) < 2:
        return ""
    most = max(*numbers, 1)
    # Short numbers: a page has about six thousand of them.
    heights = (f"{HEIGHT - HEIGHT * value / most:.1f}".removesuffix(".0") for value in numbers)
    return " ".join(f"{place},{height}" for place, height in enumerate(heights))


@require_safe
@page(Action.SEE)
@from_replica
def rates(request: HttpRequest) -> HttpResponse:
    """Return the chart lines of a group, or of all groups, by name; times are in seconds since the Epoch."""
    span = parameters.span_of(request.GET)
    group = parameters.group_of(request.GET) if "name" in request.GET else None
    try:
        with at_most(LIMIT_S, using=Task.objects.db):
            series = series_of_all(span) if group is None else series_of(group, span)
    except TookTooLong:
        return JsonResponse({"detail": "The database took too long."}, status=503)
    return JsonResponse(
        {
            "times": [at_ms // 1_000 for at_ms in series.starts_ms],
            **series.per_minute,
            "backlog": series.backlog,
            **_by_percentile("wait", series.waits),
            **_by_percentile("run", series.runs),
        }
    )


def _by_percentile(name: str, found: list[Percentiles]) -> dict[str, list[int | None]]:
    return {
        f"{name}{percent}": [times[place] if times else None for times in found]
        for place, percent in enumerate(PERCENTILES)
    }
