"""A proxy whose connections break at random: before the request got through, or after it, or amid the answer."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


class Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 300

    def __init__(self, target: str, chance: float) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.target, self.chance = httpx.Client(base_url=target, trust_env=False, timeout=60), chance
        self.random = random.Random(1)
        self.connections = self.broken = 0
        self.breaks: Callable[[], bool] = self._throw_the_dice

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def _throw_the_dice(self) -> bool:
        is_bad = self.random.random() < self.chance
        self.broken += is_bad
        return is_bad


class Passing(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.breaks():
            return self.cut()
        answer = self.server.target.request(self.command, self.path, content=body, headers=dict(self.headers))
        if self.server.breaks():
            return self.cut()
        head = f"HTTP/1.1 {answer.status_code} \r\nContent-Length: {len(answer.content)}\r\n\r\n".encode()
        is_whole = not self.server.breaks()
        self.wfile.write(head + answer.content[: None if is_whole else len(answer.content) // 2])
        return None if is_whole else self.cut()

    def do_GET(self) -> None:
        self.do_POST()

    def do_PUT(self) -> None:
        self.do_POST()

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxy_to(url: str, *, chance: float = 0) -> Iterator[Proxy]:
    """A proxy to the server there; `chance`: of a break at each of the three places."""
    with Proxy(url, chance) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
            proxy.target.close()
