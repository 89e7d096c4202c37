"""Connections break; what was asked for is done once."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from taskstore import AsyncClient, Client, CommitUnknown, StoreUnavailable
from taskstore.client import transport

from .breaking import proxy_to

TASKS = 200


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(transport, "FIRST_PAUSE_S", 0.001)


def test_each_add_and_each_claim_is_done_once(served, token):
    with proxy_to(served.url, chance=0.1) as proxy:
        asyncio.run(add_all(proxy.url, token))
        with Client(proxy.url, token=token) as client, ThreadPoolExecutor(4) as threads:
            assert sorted(int(task.text) for task in client.group("mail")) == list(range(TASKS))
            claimed = [task for tasks in threads.map(lambda _: client.claim("mail"), range(TASKS)) for task in tasks]
            assert len({task.origin for task in claimed}) == TASKS
            assert client.claim("mail") == []
            list(threads.map(client.delete, claimed))
            assert client.groups() == []
    assert proxy.broken > TASKS / 2


async def add_all(url, token):
    async with AsyncClient(url, token=token) as client:
        few = asyncio.Semaphore(8)

        async def add(number):
            async with few:
                await client.add("mail", str(number))

        await asyncio.gather(*map(add, range(TASKS)))


def test_a_list_that_breaks_off_is_an_error(served, token):
    with Client(served.url, token=token) as client:
        client.add("mail", "x" * 100_000)
    with proxy_to(served.url) as proxy, Client(proxy.url, token=token) as client:
        client.groups()
        proxy.breaks = iter([False, False, True]).__next__
        with pytest.raises(StoreUnavailable, match="broke off"):
            list(client.group("mail"))


def test_an_undo_whose_answer_is_lost_is_not_sent_again(served, token):
    with proxy_to(served.url) as proxy, Client(proxy.url, token=token) as client:
        proxy.breaks = iter([False, True]).__next__
        with pytest.raises(CommitUnknown):
            client.undo_operation(1)
