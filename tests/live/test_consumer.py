"""The socket of a console page: who gets in, what comes out, what ends it."""

import asyncio
import json
import threading
import time

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import OperationalError

from tasks_app.counts import Counts
from tasks_app.live import consumer as module
from tasks_app.live.broadcaster import Broadcaster
from tasks_app.live.messages import Snapshot
from tasks_app.meters import meters
from taskstore_project.asgi import application

from .loop import in_event_loop

# Not inside a transaction: channels closes connections that are in one when it is done with them.
pytestmark = [pytest.mark.once, pytest.mark.usefixtures("transactional_db")]

OWN_PAGE = "http://localhost:8048"
MAIL = {"mail": [3, 0, 0, 0, 0]}


@pytest.fixture
def counts() -> dict[str, Counts]:
    """The counts of a store; a test may change them."""
    return {"mail": Counts(ready=3)}


@pytest.fixture(autouse=True)
def broadcaster(counts, monkeypatch) -> Broadcaster:
    def read() -> Snapshot:
        return Snapshot(at_ms=1_000_000, read_at_s=time.monotonic(), groups=dict(counts))

    broadcaster = Broadcaster(read)
    monkeypatch.setattr(module, "broadcaster", broadcaster)
    return broadcaster


@pytest.fixture
def ann() -> User:
    """A viewer."""
    user = User.objects.create_user("ann", password="a long password")
    user.groups.add(Group.objects.get(name="viewer"))
    return user


@pytest.fixture
def cookie(ann, client) -> str:
    """What Ann's browser sends."""
    client.force_login(ann)
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


def socket(cookie: str = "", origin: str | None = OWN_PAGE, path: str = "/console/live") -> WebsocketCommunicator:
    headers = [(b"host", b"localhost:8048"), (b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    return WebsocketCommunicator(application, path, headers=headers)


async def connected(cookie: str) -> WebsocketCommunicator:
    page = socket(cookie)
    is_accepted, _ = await page.connect()
    assert is_accepted
    return page


async def counts_on(page: WebsocketCommunicator) -> dict:
    """The next message that has counts."""
    while True:
        message: dict = json.loads(await page.receive_from(timeout=3))
        if "full" in message or "delta" in message:
            return message


async def code_of_the_end(page: WebsocketCommunicator) -> int:
    while True:
        event = await page.receive_output(timeout=3)
        if event["type"] == "websocket.close":
            return int(event["code"])


@in_event_loop
async def test_a_viewer_gets_all_counts_at_once(cookie):
    page = await connected(cookie)
    assert (await counts_on(page))["full"] == MAIL
    await page.disconnect()


@in_event_loop
async def test_viewers_are_counted(cookie):
    before = meters.sum_of("websockets")
    first, second = await connected(cookie), await connected(cookie)
    assert meters.sum_of("websockets") == before + 2
    await first.send_to(text_data="garbage")  # One that is thrown out leaves only once.
    await code_of_the_end(first)
    await first.disconnect()
    assert meters.sum_of("websockets") == before + 1
    await second.disconnect()
    assert meters.sum_of("websockets") == before


@in_event_loop
async def test_a_change_arrives_by_itself(cookie, counts):
    page = await connected(cookie)
    first = await counts_on(page)
    counts["mail"] = Counts(ready=2, claimed=1)
    second = await counts_on(page)
    assert second["delta"] == {"mail": [2, 1, 0, 0, 0]}
    assert second["seq"] == first["seq"] + 1
    await page.disconnect()


@in_event_loop
async def test_a_page_that_missed_something_asks_for_all_counts(cookie):
    page = await connected(cookie)
    first = await counts_on(page)
    await page.send_to(text_data='{"type": "full"}')
    again = await counts_on(page)
    assert (again["full"], again["seq"]) == (first["full"], first["seq"])
    await page.disconnect()


@in_event_loop
async def test_a_ping_is_no_mistake(cookie):
    page = await connected(cookie)
    await page.send_to(text_data='{"type": "ping"}')
    await page.send_to(text_data='{"type": "full"}')
    assert (await counts_on(page))["full"] == MAIL
    await page.disconnect()


@in_event_loop
async def test_a_user_without_a_role_is_turned_away(cookie, ann):
    await ann.groups.aclear()
    is_accepted, _ = await socket(cookie).connect()
    assert not is_accepted


async def take_the_role_away(ann: User) -> None:
    await ann.groups.aclear()


async def lock_out(ann: User) -> None:
    ann.is_active = False
    await ann.asave()


async def change_the_password(ann: User) -> None:
    ann.set_password("another long password")
    await ann.asave()


@pytest.mark.parametrize("change", [take_the_role_away, lock_out, change_the_password])
@in_event_loop
async def test_who_loses_the_right_loses_the_connection(cookie, ann, change, monkeypatch):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.05)
    page = await connected(cookie)
    await counts_on(page)
    await change(ann)
    assert await code_of_the_end(page) == module.NO_RIGHT
    await page.disconnect()


@in_event_loop
async def test_a_session_that_ends_by_time_ends_the_connection(cookie, monkeypatch, settings):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.05)
    page = await connected(cookie)
    await counts_on(page)
    settings.SESSION_COOKIE_AGE = 0
    assert await code_of_the_end(page) == module.NO_RIGHT
    await page.disconnect()


@in_event_loop
async def test_a_viewer_stays_while_the_database_is_away(cookie, monkeypatch, counts):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.05)
    page = await connected(cookie)
    await counts_on(page)
    asked = asyncio.Event()

    async def unreachable(_: object) -> bool:
        asked.set()
        raise OperationalError("the database is away")

    monkeypatch.setattr(module, "_may_see", unreachable)
    async with asyncio.timeout(3):
        await asked.wait()
    counts["mail"] = Counts(ready=4)
    assert (await counts_on(page))["delta"] == {"mail": [4, 0, 0, 0, 0]}
    await page.disconnect()


@in_event_loop
async def test_a_page_that_closes_is_no_viewer_any_more(cookie, broadcaster):
    page = await connected(cookie)
    await counts_on(page)
    await page.disconnect()
    assert broadcaster.full() == []


@in_event_loop
async def test_a_viewer_whose_rights_cannot_be_told_has_to_go(cookie, monkeypatch, caplog):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.05)
    page = await connected(cookie)

    async def broken(_: object) -> bool:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(module, "_may_see", broken)
    assert await code_of_the_end(page) == module.NO_RIGHT
    assert "a mistake of ours" in caplog.text
    await page.disconnect()


@in_event_loop
async def test_a_viewer_hears_counts_while_the_rights_are_waited_for(cookie, monkeypatch, counts):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.05)
    page = await connected(cookie)
    await counts_on(page)
    is_asked, is_told = threading.Event(), threading.Event()

    def slow(*_: object) -> bool:
        is_asked.set()
        return is_told.wait(10)

    monkeypatch.setattr(module, "may", slow)
    assert await asyncio.to_thread(is_asked.wait, 5)
    counts["mail"] = Counts(ready=4)
    assert (await counts_on(page))["delta"] == {"mail": [4, 0, 0, 0, 0]}
    is_told.set()
    await page.disconnect()
