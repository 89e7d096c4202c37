"""Who gets in after the first start of a store: whoever started it, from this machine, with one password."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Server

LISTENS = "0A"  # The state of a socket, as the kernel writes it.


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="where sockets are to be seen differs by system")
def test_it_listens_on_the_loopback_alone(empty_place, command):
    with empty_place.up(command=command) as server:
        listening = set(listening_addresses())
        mine = {address for address, inode in listening if inode in sockets_of(server)}
        # For HTTP and for gRPC; `serve` has a process for each of its workers, which share them.
        assert mine
        assert [address for address in mine if not address.is_loopback] == []


def test_the_first_password_is_printed_once_and_kept_nowhere(empty_place, command):
    with empty_place.up(command=command) as first:
        [password] = re.findall(r"The first user is admin, with the password (\S{19}) ", first.said)
        assert first.end() == 0
        assert (first.said + first.complaints).count(password) == 1
    for file in filter(Path.is_file, empty_place.folder.rglob("*")):
        assert password.encode() not in file.read_bytes(), file
    with empty_place.up(command=command) as second:
        assert second.end() == 0
        assert "with the password" not in second.said + second.complaints


def listening_addresses() -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
    """Of every process here: where it listens, and the number of the socket."""
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == LISTENS:
                yield address_of(local.partition(":")[0]), inode


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes words of four bytes, each in the order of the machine."""
    words = [bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def sockets_of(server: Server) -> set[str]:
    """The numbers of the sockets of the server's process."""
    found = set()
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        if number := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)):
            found.add(number[1])
    return found
