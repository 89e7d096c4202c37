"""What works in a server process beside the answering of HTTP requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .bulk.runner import Runner
from .command_lists import ListMaker
from .grpc_api.port import GrpcPort
from .policy import commands_are_on
from .schedules import Scheduler
from .writer import Companion, Writer


def work(grpc: GrpcPort | None) -> Callable[[], Writer]:
    """What starts the writer, bulk operations, schedules, lists of commands and gRPC, on the loop that runs then.

    All of it stops with the writer.
    """
    companions: list[Callable[[], Companion]] = []
    if grpc:
        # Only where it is wanted: it takes 12 MB.
        from .grpc_api.serving import GrpcServer

        companions.append(partial(GrpcServer, grpc))
    if commands_are_on():
        companions.append(ListMaker)
    return partial(_start, [*companions, Runner, Scheduler])


def _start(companions: Sequence[Callable[[], Companion]]) -> Writer:
    # All before the writer: where one can't begin, nothing is left at work.
    made = [make() for make in companions]
    writer = Writer.start()
    for companion in made:
        writer.keep(companion)
    return writer
