"""Several server processes look after the same commands, and die at any moment."""

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from msgspec.structs import replace

from lab.testing import PROJECT
from tasks_app.commands import make_lists, process_closed
from tasks_app.commands.bundling import look_after
from tasks_app.models import Task
from taskstore.types.command_record import CommandStatus, Run
from tests.server.harness import wait_for

from .commands import close, commands_in, lists_in, submitted

pytestmark = pytest.mark.usefixtures("transactional_db")

LOOKS_AFTER = """
import sys, django
from django.conf import settings
django.setup()
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
from tasks_app.commands.bundling import look_after
print("ready", flush=True)
while True:
    look_after()
"""


@pytest.fixture(autouse=True)
def small_lists(settings, monkeypatch):
    settings.TASKSTORE_COMMAND_LISTS = "*=7/1d/0s"
    monkeypatch.setenv("TASKSTORE_COMMAND_LISTS", "*=7/1d/0s")


def together(work, number=4):
    """Do it in several threads at the same moment, each with a connection of its own."""
    barrier = threading.Barrier(number)

    def begin():
        barrier.wait()
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(number) as threads:
        return [each.result() for each in [threads.submit(begin) for _ in range(number)]]


def until_nothing_is_left(verb):
    def work():
        while verb("default"):
            pass

    return work


def test_each_new_command_gets_into_one_list_and_each_list_has_a_name_of_its_own():
    commands = submitted(300)
    together(until_nothing_is_left(make_lists))
    make_lists("default")
    lists = lists_in("default")
    assert Counter(each.id for made in lists for each in made.commands) == Counter(each.id for each in commands)
    assert len({made.name for made in lists}) == len(lists)
    assert commands_in("default", CommandStatus.NEW) == []


def test_each_closed_list_is_settled_once():
    commands = submitted(70)
    make_lists("default")
    for _ in lists_in("default"):
        close("default", lambda command: replace(command, run=Run(worker="w", exit_code=0)))
    together(until_nothing_is_left(process_closed))
    done = commands_in("default", CommandStatus.COMPLETED)
    assert Counter(each.id for each in done) == Counter(each.id for each in commands)


def test_what_a_killed_process_leaves_another_one_goes_on_with():
    commands = submitted(1_000)
    for _ in range(6):
        before = seen()
        with looking_after() as process:
            wait_for(lambda before=before: seen() != before or not pending(), "a look")
            process.kill()
        if lists_in("default"):
            close("default", lambda command: replace(command, run=Run(worker="w", exit_code=0)))
    while look_after() or lists_in("default"):
        if lists_in("default"):
            close("default", lambda command: replace(command, run=Run(worker="w", exit_code=0)))
    done = commands_in("default", CommandStatus.COMPLETED)
    assert Counter(each.id for each in done) == Counter(each.id for each in commands)


def looking_after():
    name = str(connections["default"].settings_dict["NAME"])
    process = subprocess.Popen(
        [sys.executable, "-c", LOOKS_AFTER, name], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def seen():
    """How many tasks there are in each group."""
    return Counter(Task.objects.get_queryset().values_list("group", flat=True))


def pending():
    return any(group.endswith(("/new", "/closed")) for group in seen())
