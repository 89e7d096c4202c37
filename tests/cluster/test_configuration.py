"""The programs take what they are told."""

import re
import subprocess

import pytest

from lab.cluster import configuration
from lab.cluster.nodes import Program
from lab.testing.debian import program
from lab.testing.places import wait_until
from lab.testing.postgresql import system_binaries
from lab.testing.servers import is_taken

pytestmark = [pytest.mark.once, pytest.mark.servers]


@pytest.fixture
def plan():
    return configuration.Plan.new()


def checked(*command, cwd):
    """What a program that only looks at its configuration complains about."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_haproxy_takes_its_configuration_without_a_warning(tmp_path, plan):
    (tmp_path / "haproxy.cfg").write_text(configuration.haproxy(plan))
    code, told = checked(program(("haproxy",), ("haproxy",)), "-c", "-f", "haproxy.cfg", cwd=tmp_path)
    assert (code, told.strip()) == (0, "Configuration file is valid")


def test_patroni_takes_its_configuration(tmp_path, disk, plan):
    etcd = Program(configuration.etcd(program(("etcd",), ("etcd-server",)), plan), disk)
    etcd.begin()
    try:
        wait_until(lambda: is_taken(plan.port["etcd"]), "etcd listens")
        text = configuration.patroni("db-1", plan, tmp_path / "db-1", system_binaries() or tmp_path)
        (tmp_path / "patroni.json").write_text(text)
        patroni = program(("patroni",), ("patroni",))
        _, told = checked(patroni, "--validate-config", "patroni.json", cwd=tmp_path)
    finally:
        etcd.kill()
    # All databases are on one machine, which Patroni takes for a mistake.
    assert [line for line in told.splitlines() if not re.search(r"connect_address .*must not contain", line)] == []
