"""One worker process of a server. Its one argument is what the crew orders, as JSON.

It says `ready` when it serves, and ends when it is told to, or when the process that started it has died.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from contextlib import suppress

import django

from .processes import READY


def main() -> None:
    orders = json.loads(sys.argv[1])
    os.umask(0o077)
    # uvicorn warns of every request that makes no sense.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    django.setup()
    # Late, as they need the settings.
    from taskstore_project.serving.starting import allow, spare_the_collector

    allow(orders["url"], no_auth=orders["no_auth"], commands=orders["commands"])
    from tasks_app.core.meters import meters
    from tasks_app.grpc_api.port import GrpcPort
    from tasks_app.rest_api.lane import Lane
    from tasks_app.serving import work
    from taskstore_project.asgi import application

    from .uvicorn_server import Server

    def say_ready() -> None:
        # Whatever ends the process that started this one, this end of the pipe notices.
        asyncio.get_running_loop().add_reader(sys.stdin, end)
        with suppress(BrokenPipeError):
            os.write(sys.stdout.fileno(), READY)

    def end() -> None:
        # At its end it is readable for ever.
        asyncio.get_running_loop().remove_reader(sys.stdin)
        server.end()

    grpc = orders["grpc"] and GrpcPort(**orders["grpc"])
    meters.join(*orders["meters"])
    listener = socket.socket(fileno=orders["socket"])
    # A service manager may tell all processes, and the crew tells its workers the same; it kills who has to hurry.
    server = Server(application, listener, say_ready, work(grpc), lane=Lane(), can_hurry=False)
    spare_the_collector()
    server.run()
    # Not by the usual way: it would wait for the threads that are still at it.
    sys.stdout.flush()
    os._exit(1 if server.has_cut_off else 0)


if __name__ == "__main__":
    main()
