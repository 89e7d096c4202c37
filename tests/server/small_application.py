"""A server with an application that does what a test needs. A process of its own: `... up|serve PATIENCE_S SLOW_S`."""

import asyncio
import json
import signal
import sys
from typing import Any

from django.conf import settings

MOST_BODY_BYTES = 50_000
LONG_BYTES = 100 * 2**20
PIECE_BYTES = 2**16

sent_bytes = 0


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await websocket(scope, receive, send)
    elif scope["path"] == "/slow":
        await slow(send)
    elif scope["path"] == "/long":
        await long(send)
    elif scope["path"] == "/sent":
        await answer(send, {"bytes": sent_bytes})
    elif scope["path"] == "/never":
        await asyncio.Event().wait()
    else:
        await body_length(receive, send)


async def body_length(receive, send):
    length, more = 0, True
    while more:
        event = await receive()
        length, more = length + len(event["body"]), event["more_body"]
    await answer(send, {"length": length})


async def slow(send):
    """Half an answer, and the rest when the process gets SIGUSR1."""
    go_on = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half ", "more_body": True})
    await go_on.wait()
    await send({"type": "http.response.body", "body": b"whole"})


async def long(send):
    """A hundred megabytes; how much of it has been sent tells `/sent`."""
    global sent_bytes
    sent_bytes = 0
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while sent_bytes < LONG_BYTES:
        await send({"type": "http.response.body", "body": b"x" * PIECE_BYTES, "more_body": True})
        sent_bytes += PIECE_BYTES
        await asyncio.sleep(0)
    await send({"type": "http.response.body"})


async def websocket(scope, receive, send):
    """Greets, and says at the end with which code it was closed. At /much it sends more than sockets hold."""
    await receive()
    await send({"type": "websocket.accept"})
    for _ in range(40 if scope["path"] == "/much" else 0):
        await send({"type": "websocket.send", "text": "x" * 1_000_000})
    await send({"type": "websocket.send", "text": "hello"})
    closed = await receive()
    print(f"closed with {closed['code']}", flush=True)


async def answer(send, value):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


if __name__ == "__main__":
    settings.configure(
        TASKSTORE_MAX_REQUEST_BYTES=MOST_BODY_BYTES,
        TASKSTORE_SLOW_CLIENT_SECONDS=float(sys.argv[3]),
        TASKSTORE_DRAIN_SECONDS=0,
    )

    from taskstore_project.serving import server as settled
    from taskstore_project.serving.daphne_server import Server as Daphne
    from taskstore_project.serving.listening import local_url, resolve
    from taskstore_project.serving.uvicorn_server import Server as Uvicorn

    settled.PATIENCE_S = settled.GRACE_S = float(sys.argv[2])

    address = resolve("127.0.0.1", 0)
    with address.bind() as bound:
        address.listen(bound)
        url = local_url(bound)
        kind: Any = {"up": Daphne, "serve": Uvicorn}[sys.argv[1]]
        server = kind(
            application, bound, lambda: print(f"ready: {url}/console/", flush=True), start_writer=lambda: None
        )
        server.run()
    print("cut off" if server.has_cut_off else "all answered", flush=True)
