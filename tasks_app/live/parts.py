"""Parts of pages that the server makes again when what they show has changed.

`batches`: the list of batches; `batch 17 18`: these; `limits`: all limits of groups; `limit NAME`: that of one group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from django.db.models import Count, Max, Sum

from taskstore.types.scalars import whole

from ..control import limits
from ..models import Batch, BatchCount


def marks_of(names: Collection[str]) -> Mapping[str, str]:
    """Return a text for each part that is another one when it has changed."""
    return {name: hashlib.blake2b(repr(_state_of(name)).encode(), digest_size=6).hexdigest() for name in names}


def _state_of(name: str) -> object:
    kind, _, rest = name.partition(" ")
    match kind:
        case "batches":
            counted = BatchCount.objects.aggregate(Sum("open"), Sum("failed"), Sum("ended"), Sum("gone"))
            return counted, Batch.objects.aggregate(Count("pk"), Max("pk"), Max("closed_at_ms"), Sum("hold"))
        case "batch":
            ids = [number for text in rest.split() if (number := whole(text)) is not None]
            found = [batch.told() for batch in Batch.objects.counted().filter(pk__in=ids).order_by("pk")]
            return found, Batch.objects.filter(parent__in=ids).count()
        case "limits":
            found_limits = limits.limits_in()
            return found_limits, limits.uses_of([limit.name for limit in found_limits if "*" not in limit.name])
        case "limit":
            return limits.limit_of(rest)
    return None
