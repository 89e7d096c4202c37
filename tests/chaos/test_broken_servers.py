"""Chaos finds what real servers do wrong, too: promises are taken out of the store one by one."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from django.db import connection

from lab.chaos.checker import violations
from lab.chaos.pace import TINY
from lab.chaos.stage import Database, Places, wait_until

from .broken_server import FAULTS, locks_no_rows

PACE = replace(TINY, clients=2)
# However long that takes on this machine. Most faults are seen many times among the first, few only among the last.
REQUESTS = (200, 700, 3_000)
# Nearly all are the same on every database, and servers take their time to start.
MINE = [fault for fault in FAULTS if (fault is locks_no_rows) == (connection.vendor == "postgresql")]


@pytest.fixture(scope="module")
def places():
    # Not pytest's own folder: PostgreSQL may run as another user, who has to reach it.
    folder = Path(tempfile.mkdtemp(prefix="taskstore-test-chaos-"))
    folder.chmod(0o711)
    with Places(folder) as places:
        yield places
    shutil.rmtree(folder)


@pytest.mark.servers
@pytest.mark.parametrize("fault", MINE, ids=[fault.__name__ for fault in MINE])
def test_what_a_server_does_wrong_is_found(places, fault):
    assert any(FAULTS[fault] in checks_that_failed(places, fault, enough) for enough in REQUESTS)


def checks_that_failed(places, fault, enough):
    with places.stage("broken", Database(connection.vendor), "7", PACE) as stage:
        stage.program = ("-m", "tests.chaos.broken_server", fault.__name__)
        # Not `serve`, whose workers are processes of the right kind.
        servers = [stage.server("up") for _ in range(1 if stage.is_sqlite else 2)]
        with stage.load(servers, resends="key" in fault.__name__):
            wait_until(lambda: noted(stage.folder) > enough, "the clients have asked enough")
        return {text.partition(":")[0] for text in violations(stage.history(servers[0]))}


def noted(folder):
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("client-*.jsonl"))
