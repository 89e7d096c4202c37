"""What a client is in each process: small, and somebody of its own."""

import json
import subprocess
import sys

import pytest

from lab.testing import PROJECT

from .breaking import proxy_to

FORK = """
import json, os, sys
from taskstore import Client

with Client(sys.argv[1], token=sys.argv[2]) as store, Client(sys.argv[1], token=sys.argv[2], client_id=7) as named:
    mine = store.add("mail", "of the parent")
    child = os.fork()
    told = {"id": store.id, "named": named.id, "owner": store.add("mail", "hello").owner, "groups": store.groups()}
    os.write(1, json.dumps(told).encode() + b"\\n")
    if child:
        os.waitpid(child, 0)
        store.delete(mine)
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.once
def test_it_needs_no_django():
    names = "{name.partition('.')[0] for name in sys.modules}"
    code = f"import sys; from taskstore import Client, Worker; print(sorted({names}))"
    loaded = run(code)
    assert "httpx" in loaded
    for package in ("django", "rest_framework", "psycopg", "taskstore_project"):
        assert f"'{package}'" not in loaded


@pytest.mark.once
def test_a_child_has_a_number_and_connections_of_its_own(served, token):
    with proxy_to(served.url) as proxy:
        parent, child = map(json.loads, run(FORK, proxy.url, token).splitlines())
        assert proxy.connections == 2
    assert parent["id"] != child["id"]
    for each in (parent, child):
        assert (each["owner"], each["named"], each["groups"]) == (each["id"], 7, ["mail"])
