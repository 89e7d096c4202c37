"""Where gRPC is served. Apart from what serves it, which takes a while to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcPort:
    address: str  # `127.0.0.1:50053`.
    is_shared: bool = False  # Each process of the server listens on it.


class PortTaken(Exception):
    """Another program listens there: stop it, or choose another port."""
