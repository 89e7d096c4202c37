"""The programs take what they are told."""

import re
import subprocess

import pytest

from lab.chaos.processes import is_taken
from lab.chaos.stage import wait_until
from lab.cluster import configuration
from lab.cluster.plan import new_plan
from lab.cluster.programs import Program, Programs

pytestmark = [pytest.mark.once, pytest.mark.servers]


@pytest.fixture(scope="module")
def programs():
    return Programs()


@pytest.fixture
def plan():
    return new_plan(nodes=3, standbys=2, etcd=3)


@pytest.fixture
def made(disk, programs):
    """Makes a program with a folder of its own; it is killed at the end."""
    all_of_them = []

    def make(*command):
        folder = disk / "program"
        folder.mkdir()
        all_of_them.append(Program(command, folder, is_unprivileged=True))
        return all_of_them[-1]

    yield make
    for program in all_of_them:
        program.kill()


def checked(*command, cwd):
    """What a program that only looks at its configuration complains about."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_haproxy_takes_its_configuration_without_a_warning(tmp_path, programs, plan):
    (tmp_path / "haproxy.cfg").write_text(configuration.haproxy(plan))
    code, told = checked(programs.haproxy, "-c", "-f", "haproxy.cfg", cwd=tmp_path)
    assert code == 0
    assert "WARNING" not in told
    assert told.strip() == "Configuration file is valid"


def test_patroni_takes_its_configuration(tmp_path, made, programs):
    plan = new_plan(nodes=1, standbys=1, etcd=1)
    made(*configuration.etcd_command(programs.etcd, plan.etcd[0], plan)).begin()
    wait_until(lambda: is_taken(plan.etcd[0].port), "etcd listens")
    text = configuration.patroni(plan.databases[0], plan, tmp_path / "db-1", programs.postgresql)
    (tmp_path / "patroni.json").write_text(text)
    _, told = checked(programs.patroni, "--validate-config", "patroni.json", cwd=tmp_path)
    # All databases are on one machine, which Patroni takes for a mistake.
    assert [line for line in told.splitlines() if not re.search(r"connect_address .*must not contain", line)] == []


def test_the_times_are_as_patroni_wants_them():
    assert configuration.TTL_S >= 20
    assert configuration.LOOP_WAIT_S + 2 * configuration.RETRY_TIMEOUT_S <= configuration.TTL_S


def test_pgbouncer_listens(made, programs, plan):
    pgbouncer = made(programs.pgbouncer, "pgbouncer.ini")
    pgbouncer.write("pgbouncer.ini", configuration.pgbouncer(plan))
    pgbouncer.write("users.txt", configuration.pgbouncer_users(plan))
    pgbouncer.begin()
    wait_until(lambda: is_taken(plan.pgbouncer_port), "pgbouncer listens")
    assert pgbouncer.is_running


def test_passwords_are_for_nobody_else_to_read(made, plan):
    program = made("true")
    program.write("users.txt", configuration.pgbouncer_users(plan))
    assert (program.folder / "users.txt").stat().st_mode & 0o077 == 0


def test_nobody_shares_a_port_or_a_password(plan):
    ports = [
        *(port for member in plan.etcd for port in (member.port, member.peer_port)),
        *(port for node in plan.databases for port in (node.port, node.patroni_port)),
        *(node.port for node in plan.nodes),
        *(plan.pgbouncer_port, plan.primary_port, plan.web_port),
    ]
    assert len(set(ports)) == len(ports) == 18
    passwords = {plan.passwords.superuser, plan.passwords.store, new_plan(nodes=1, standbys=1, etcd=1).passwords.store}
    assert len(passwords) == 3
