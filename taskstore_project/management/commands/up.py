"""Run the server in one process."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from tasks_app.grpc_api.port import GrpcPort
from tasks_app.serving import work
from taskstore_project.serving.daphne_server import Server
from taskstore_project.serving.starting import ServerCommand, say_ready, spare_the_collector


class Command(ServerCommand):
    help = "Run the server in one process: console, REST API and gRPC."

    def serve(self, bound: socket.socket, url: str, grpc: GrpcPort | None, options: Mapping[str, Any]) -> bool:
        # Imported late, as it reads the settings and imports all pages.
        from tasks_app.rest_api.lane import Lane
        from taskstore_project.asgi import application

        server = Server(application, bound, partial(say_ready, url, grpc), work(grpc), lane=Lane())
        spare_the_collector()
        server.run()
        return not server.has_cut_off
