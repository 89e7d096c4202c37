"""Servers as on different machines: a data directory each, one database, and a proxy in front."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from lab.testing import NO_TLS, debian

from .harness import START_SECONDS, Server, Store, accepts, free_port, wait_for

PASSWORD = "correct horse battery"
MAKING = (
    "from django.contrib.auth.models import Group, User\n"
    f"User.objects.create_user('vera', password='{PASSWORD}').groups.add(Group.objects.get(name='viewer'))"
)

HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 90s
    timeout server 90s
    option redispatch
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    http-check expect status 200
    default-server check inter 300ms fall 1 rise 1
listen store
    bind 127.0.0.1:{port}
"""


def node(parent: Path, database_url: str, name: str) -> Store:
    """Where another machine's server is started."""
    folder = parent / name
    folder.mkdir()
    return Store(folder, database_url)


@contextmanager
def proxy(folder: Path, ports: Sequence[int]) -> Iterator[Server]:
    """haproxy before the servers on these ports: asked like a server."""
    file, port = folder / "haproxy.cfg", free_port()
    servers = [f"    server node{number} 127.0.0.1:{each}\n" for number, each in enumerate(ports)]
    file.write_text(HAPROXY.format(port=port) + "".join(servers))
    program = debian.program(("haproxy",), ("haproxy",))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    haproxy = Server(subprocess.Popen([program, "-db", "-f", str(file)], **pipes))
    haproxy.url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: accepts(haproxy), "haproxy listens")
        yield haproxy
    finally:
        haproxy.kill()


@contextmanager
def viewer(place: Store, server: Server) -> Iterator[httpx.Client]:
    """The browser of somebody who has just signed in, and may see what there is."""
    assert place.manage("shell", "-c", MAKING).returncode == 0
    with signed_in(server, "vera", PASSWORD) as browser:
        yield browser


@contextmanager
def signed_in(server: Server, name: str, password: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=START_SECONDS, trust_env=False, verify=NO_TLS) as browser:
        [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/console/login").text)
        form = {"csrfmiddlewaretoken": token, "username": name, "password": password}
        assert browser.post("/console/login", data=form, headers={"Referer": server.url}).status_code == 302
        yield browser


def answering(server: Server) -> str:
    """The process that answered just now."""
    return str(server.ask("GET", "/healthz").json().get("instance", ""))


def wait_for_answer_of(instance: str, proxy: Server) -> None:
    wait_for(lambda: answering(proxy) == instance, "an answer of the new server through the proxy")
