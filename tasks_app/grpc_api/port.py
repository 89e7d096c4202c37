"""Where gRPC is served. Apart from what serves it, which takes a while to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcPort:
    """Held by who started this process, for as many listeners as there are: nobody else gets it."""

    address: str  # `127.0.0.1:50053`.
