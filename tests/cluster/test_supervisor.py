"""What dies is started again, and in the end nothing is left."""

import pytest

from lab.chaos.stage import wait_until
from lab.cluster.nodes import Supervisor
from lab.cluster.programs import Program, at_work_in

pytestmark = [pytest.mark.once, pytest.mark.servers]

# As PostgreSQL leaves the family of its Patroni.
WITH_A_CHILD_THAT_LEAVES = "(setsid sleep 600 &); exec sleep 600"


@pytest.fixture
def program(disk):
    folder = disk / "program"
    folder.mkdir()
    return Program(["sh", "-c", WITH_A_CHILD_THAT_LEAVES], folder)


def wait_for_both(program, *, but_not=()):
    def are_there():
        return len(set(at_work_in(program.folder)) - set(but_not)) == 2

    wait_until(are_there, "the program and its child are there")
    return at_work_in(program.folder)


def test_what_was_killed_is_started_again(program):
    with Supervisor() as supervisor:
        supervisor.begin(program)
        first = wait_for_both(program)
        supervisor.kill(program)
        second = wait_for_both(program, but_not=first)
        assert not set(first) & set(second)
    assert at_work_in(program.folder) == []


def test_what_was_taken_away_stays_away_until_it_is_given_back(program):
    with Supervisor() as supervisor:
        supervisor.begin(program)
        wait_for_both(program)
        supervisor.take_away(program)
        supervisor.look()
        assert at_work_in(program.folder) == []
        supervisor.give_back(program)
        wait_for_both(program)


def test_nothing_is_left_where_something_goes_wrong(program):
    def fail():
        with Supervisor() as supervisor:
            supervisor.begin(program)
            wait_for_both(program)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert at_work_in(program.folder) == []
