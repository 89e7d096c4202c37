"""Services that run in a server process beside the answering of HTTP requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from .bulk import Runner
from .commands import ListMaker
from .conf.commands import commands_are_on
from .control.progress import Reports
from .grpc_api.port import GrpcPort
from .schedules import RightsKeeper, Scheduler
from .writer.writer import Companion, Writer

# After so long a thread that works on a large request lets the event loop go on; Python's own 5 ms add up.
SWITCH_S = 0.0002


def work(grpc: GrpcPort | None) -> Callable[[], Writer]:
    """Start the writer, bulk operations, schedules, lists of commands and gRPC, on the loop that runs then.

    All of it stops with the writer.
    """
    companions: list[Callable[[], Companion]] = []
    if grpc:
        # Only where it is wanted: it takes 12 MB.
        from .grpc_api.serving import GrpcServer

        companions.append(partial(GrpcServer, grpc))
    if commands_are_on():
        companions.append(ListMaker)
    return partial(_start, [*companions, Runner, Scheduler, RightsKeeper, Reports])


def _start(companions: Sequence[Callable[[], Companion]]) -> Writer:
    sys.setswitchinterval(SWITCH_S)
    # All before the writer: where one can't begin, nothing is left at work.
    made = [make() for make in companions]
    writer = Writer.start()
    for companion in made:
        writer.keep(companion)
    return writer
