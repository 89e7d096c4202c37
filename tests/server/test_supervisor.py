"""What systemd, or who else starts a server with NOTIFY_SOCKET, is told of it."""

import os
import socket
import tempfile

import pytest

from .harness import START_SECONDS

pytestmark = pytest.mark.once


@pytest.fixture(params=["a file", "no file"])
def notified(request):
    """A socket that listens, and what NOTIFY_SOCKET says of it."""
    # Not in pytest's folder: the name of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        address = f"{folder}/notify" if request.param == "a file" else f"@taskstore-{os.getpid()}"
        listening.bind(address.replace("@", "\0"))
        listening.settimeout(START_SECONDS)
        yield listening, address


def test_it_says_when_it_serves_and_when_it_stops(store, command, notified):
    listening, address = notified
    with store.up(command=command, NOTIFY_SOCKET=address) as server:
        assert listening.recv(100) == b"READY=1"
        assert server.ask("GET", "/readyz").status_code == 200
        assert server.end() == 0
        assert listening.recv(100) == b"STOPPING=1"
        assert server.complaints == ""


def test_it_serves_all_the_same_when_nobody_listens(store, command, tmp_path):
    with store.up(command=command, NOTIFY_SOCKET=str(tmp_path / "away")) as server:
        assert server.ask("GET", "/readyz").status_code == 200
        assert server.end() == 0
        assert "can't report READY=1 to NOTIFY_SOCKET=" in server.complaints
