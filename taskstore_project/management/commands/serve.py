"""Run the server in several processes, for heavy traffic, on PostgreSQL."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import DEFAULT_DB_ALIAS

from tasks_app.database import dialect_of
from tasks_app.grpc_api.port import GrpcPort
from taskstore_project.base_command import CannotRun, number_between, typed
from taskstore_project.serving.processes import Crew
from taskstore_project.serving.starting import ServerCommand, say_ready

worker_count = number_between(1, 256, "a number of processes")


class Command(ServerCommand):
    help = "Run the server in several processes, on PostgreSQL, for heavy traffic."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--workers", type=worker_count, default=2, help="number of processes (default: 2)")

    def handle(self, **options: Any) -> None:
        if not dialect_of(DEFAULT_DB_ALIAS).serves_many:
            raise CannotRun(
                "serve needs PostgreSQL, because SQLite allows only one server process: set DATABASE_URL, "
                f"or use `{typed('up')}`"
            )
        super().handle(**options)

    def serve(self, bound: socket.socket, url: str, grpc: GrpcPort | None, options: Mapping[str, Any]) -> bool:
        allowed = {"no_auth": settings.TASKSTORE_NO_AUTH, "commands": settings.TASKSTORE_COMMANDS}
        crew = Crew(bound, url, grpc, allowed=allowed, size=options["workers"])
        return crew.run(when_ready=partial(say_ready, url, grpc))
