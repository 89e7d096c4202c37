"""The address of the gRPC server, apart from the server, which takes a while to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcPort:
    """A port that the starting process holds for all listeners, so that no other process gets it."""

    address: str  # `127.0.0.1:50053`.
