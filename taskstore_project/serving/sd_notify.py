"""Notify a supervisor such as systemd of the server's state: a datagram to its socket, see sd_notify(3)."""

import logging
import os
import socket

ADDRESS = "NOTIFY_SOCKET"  # The variable in which a supervisor names its socket; without it there is none.
READY = "READY=1"
STOPPING = "STOPPING=1"

log = logging.getLogger(__name__)


def tell(state: str) -> None:
    """Tell the supervisor, if there is one. A server that can't goes on: it serves all the same."""
    address = os.environ.get(ADDRESS)
    if not address:
        return
    # Linux has sockets without a file, too: as a variable can't hold their NUL, it stands there as an @.
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagrams:
            datagrams.sendto(state.encode(), name)
    except OSError as problem:
        log.warning("can't report %s to %s=%s: %s", state, ADDRESS, address, problem.strerror)
