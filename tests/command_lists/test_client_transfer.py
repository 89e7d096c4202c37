"""Whole projects through the client: out of a server, and into it."""

import asyncio

import pytest
from msgspec.structs import replace

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import AsyncClient, Client, CommandStatus, InvalidInput, UnexpectedAnswer
from taskstore.client.commands import MOST_BYTES, Incoming, outgoing
from taskstore.types.command_record import Command, CommandList, Line
from taskstore.types.commands import ImportedCommands

from .commands import commands_in
from .stages import completed, is_in, open_list

COMMAND = Command(id="5_0", cmd="true", created=5, until=2**40, expected_duration=60, max_fails=3)
LIST = CommandList(name="5", commands=(replace(COMMAND, id="a_0"), replace(COMMAND, id="b_0")))


@pytest.fixture
def secret(served, settings):
    settings.TASKSTORE_COMMANDS = True
    return tokens.create("ann", Scope.COMMANDS)[1]


@pytest.fixture
def client(served, secret):
    with Client(served.url, token=secret) as client:
        yield client


def all_of(*pieces):
    incoming = Incoming()
    found = [entry for piece in pieces for entry in incoming.feed(piece)]
    incoming.end()
    return found


def many(number):
    return [(CommandStatus.NEW, replace(COMMAND, id=f"{each}_0")) for each in range(number)]


def test_a_project_goes_from_one_place_to_another(client):
    _, done = completed(out=b"\xff" * 70_000)
    _, made = open_list()
    entries = list(client.commands.export_project("default"))
    assert entries == [(CommandStatus.COMPLETED, done), (CommandStatus.OPEN, made)]
    assert client.commands.import_project("daily", iter(entries)) == ImportedCommands(commands=3, lists=1)
    assert list(client.commands.export_project("daily")) == entries
    assert client.commands.import_project("daily", entries) == ImportedCommands(there_already=3)


def test_there_may_be_more_than_fit_a_request(client):
    assert client.commands.import_project("nightly", many(1_001)).commands == 1_001
    assert len(commands_in("nightly", CommandStatus.NEW)) == 1_001


def test_nothing_is_nothing(client):
    assert client.commands.import_project("nightly", []) == ImportedCommands()
    assert list(client.commands.export_project("nightly")) == []


def test_what_is_wrong_is_told_by_its_name(client):
    entries = [*many(1_000), (CommandStatus.NEW, replace(COMMAND, id="x_0", cmd="a\nb")), (CommandStatus.OPEN, LIST)]
    with pytest.raises(InvalidInput) as refused:
        client.commands.import_project("nightly", entries)
    assert list(refused.value.fields) == ["new/x_0: command.cmd"]
    # The requests before were whole. Sent again, they add nothing.
    assert client.commands.import_project("nightly", [*many(1_000), entries[-1]]) == ImportedCommands(
        commands=2, lists=1, there_already=1_000
    )
    with pytest.raises(InvalidInput) as refused:
        client.commands.import_project("nightly", [(CommandStatus.OPEN, replace(LIST, commands=()))])
    assert list(refused.value.fields) == ["open/5: list.commands"]


def test_the_awaited_client_does_the_same(served, secret):
    is_in(CommandStatus.NEW_STASHED)

    async def there_and_back():
        async with AsyncClient(served.url, token=secret) as client:
            entries = [entry async for entry in client.commands.export_project("default")]
            return entries, await client.commands.import_project("daily", entries)

    entries, imported = asyncio.run(there_and_back())
    assert [status for status, _ in entries] == ["new_stashed"]
    assert imported == ImportedCommands(commands=1)


@pytest.mark.once
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_lines_come_in_any_pieces(size):
    entries = [*many(3), (CommandStatus.OPEN, LIST)]
    body = b"".join(Line.of(entry).encode() for entry in entries)
    assert all_of(*(body[start : start + size] for start in range(0, len(body), size))) == entries


@pytest.mark.once
@pytest.mark.parametrize(
    "body", [b"<html>\n", b'{"status":"new"}\n', b'{"status":"new"', b"\xff\n", b"[" * 100_000 + b"\n"]
)
def test_what_are_no_lines_is_no_answer(body):
    with pytest.raises(UnexpectedAnswer):
        all_of(body)


@pytest.mark.once
def test_a_request_is_not_larger_than_a_server_takes():
    large = [(CommandStatus.NEW, replace(COMMAND, cmd="x" * (MOST_BYTES // 3))) for _ in range(5)]
    assert [len(each.entries) for each in outgoing([*large, *many(1_001)])] == [2, 2, 1_000, 2]
