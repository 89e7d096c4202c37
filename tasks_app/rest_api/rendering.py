"""Answers as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rest_framework.renderers import BaseRenderer

ENCODER = msgspec.json.Encoder()


class JSONRenderer(BaseRenderer):
    """JSON in UTF-8, of the types in `answers`. Integers are exact to 64 bits."""

    media_type = "application/json"
    format = "json"
    charset = None  # It is UTF-8 by definition.

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else ENCODER.encode(data)
