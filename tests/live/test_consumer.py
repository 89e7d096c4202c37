"""The socket of a console page: who gets in, what comes out, what ends it."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Collection

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connections
from django.test import Client

from tasks_app.access import accounts
from tasks_app.access.policy import actor_of
from tasks_app.core.meters import meters
from tasks_app.live import consumer as module
from tasks_app.live.broadcaster import Broadcaster
from tasks_app.live.messages import Snapshot
from tasks_app.writer.totals import Numbers
from taskstore_project.asgi import application

from .loop import in_event_loop

# Not inside a transaction: channels closes connections that are in one when it is done with them.
pytestmark = [pytest.mark.once, pytest.mark.usefixtures("transactional_db")]

PATIENCE_S = 20
OWN_PAGE = "http://localhost:8048"
MAIL = {"groups": {"mail": [3, 0, 0, 0, 0, 0, 0, 0]}}
ASK = '{"type": "full", "groups": ["mail"]}'


@pytest.fixture
def counts() -> dict[str, Numbers]:
    """The counts of a store; a test may change them."""
    return {"mail": Numbers(tasks=3)}


@pytest.fixture(autouse=True)
def broadcaster(counts, monkeypatch) -> Broadcaster:
    def read(groups: Collection[str]) -> Snapshot:
        found = {group: each for group, each in counts.items() if group in groups}
        return Snapshot(at_ms=1_000_000, read_at_s=time.monotonic(), groups=found)

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
    await page.send_to(text_data=ASK)
    return page


async def counts_on(page: WebsocketCommunicator) -> dict:
    """The next message that has counts."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message: dict = json.loads(await page.receive_from(timeout=PATIENCE_S))
            if "full" in message or "delta" in message:
                return message


async def code_of_the_end(page: WebsocketCommunicator) -> int:
    async with asyncio.timeout(PATIENCE_S):  # Heartbeats come without end.
        while True:
            event = await page.receive_output(timeout=PATIENCE_S)
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
    counts["mail"] = Numbers(tasks=3, leases=1, claimed=1)
    second = await counts_on(page)
    assert second["delta"] == {"groups": {"mail": [2, 1, 0, 0, 0, 0, 0, 0]}}
    assert second["seq"] == first["seq"] + 1
    await page.disconnect()


@in_event_loop
async def test_a_ping_is_no_mistake(cookie):
    page = await connected(cookie)
    await page.send_to(text_data='{"type": "ping"}')
    await page.send_to(text_data=ASK)
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


def sign_out(ann: User, cookie: str) -> None:
    browser = Client()
    browser.cookies[settings.SESSION_COOKIE_NAME] = cookie
    assert browser.post("/console/logout").status_code == 302


def sign_out_everywhere(ann: User, cookie: str) -> None:
    accounts.sign_out_everywhere(ann, actor_of(ann))


def beside(end: Callable[[User, str], None], ann: User, cookie: str) -> None:
    try:
        end(ann, cookie)
    finally:
        connections.close_all()  # Of this thread.


@pytest.mark.parametrize("end", [sign_out, sign_out_everywhere])
@in_event_loop
async def test_a_sign_out_ends_the_connection_at_once(cookie, ann, end, monkeypatch):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 600)
    page = await connected(cookie)
    await counts_on(page)
    await asyncio.to_thread(beside, end, ann, cookie)
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

    monkeypatch.setattr(module, "_sight_of", unreachable)
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
    counts["mail"] = Numbers(tasks=4)
    assert (await counts_on(page))["delta"] == {"groups": {"mail": [4, 0, 0, 0, 0, 0, 0, 0]}}
    await page.disconnect()


@in_event_loop
async def test_a_page_that_closes_is_no_viewer_any_more(cookie, broadcaster):
    page = await connected(cookie)
    await counts_on(page)
    await page.disconnect()
    assert broadcaster.viewers == 0


@in_event_loop
async def test_a_viewer_whose_rights_cannot_be_told_has_to_go(cookie, monkeypatch, caplog):
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.05)
    page = await connected(cookie)

    async def broken(_: object) -> bool:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(module, "_sight_of", broken)
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
    counts["mail"] = Numbers(tasks=4)
    assert (await counts_on(page))["delta"] == {"groups": {"mail": [4, 0, 0, 0, 0, 0, 0, 0]}}
    is_told.set()
    await page.disconnect()


@in_event_loop
async def test_one_person_may_have_so_many_pages_open(cookie, settings):
    settings.TASKSTORE_SOCKETS_PER_PERSON = 2
    pages = [await connected(cookie), await connected(cookie)]
    third = socket(cookie)
    await third.connect()
    refusal = await third.receive_output(timeout=3)
    assert (refusal["type"], refusal["code"]) == ("websocket.close", module.TOO_MANY)
    assert refusal["reason"] == "You have 2 pages with live numbers open. Close some of them."
    await pages.pop().disconnect()
    pages.append(await connected(cookie))
    assert (await counts_on(pages[-1]))["full"] == MAIL
    for page in [*pages, third]:
        await page.disconnect()


@in_event_loop
async def test_a_process_has_so_many_sockets(cookie, settings):
    settings.TASKSTORE_SOCKETS = 1
    page, other = await connected(cookie), socket(cookie)
    await other.connect()
    refusal = await other.receive_output(timeout=3)
    assert (refusal["code"], refusal["reason"]) == (
        module.TOO_MANY, "Too many pages with live numbers are open on this server. Try again later.",
    )  # fmt: skip
    await page.disconnect()
    await other.disconnect()


@in_event_loop
async def test_a_page_that_asks_without_end_is_closed(cookie):
    page = await connected(cookie)
    for _ in range(2_000):
        await page.send_to(text_data=ASK)
    assert await code_of_the_end(page) == module.TOO_MANY
    await page.disconnect()


@in_event_loop
async def test_the_rights_of_many_pages_are_looked_up_once(cookie, monkeypatch):
    pages = [await connected(cookie) for _ in range(5)]
    asked, is_enough = [], asyncio.Event()
    sight_of = module._sight_of

    async def counted(user: object) -> module.Sight:
        asked.append(user)
        if len(asked) == 2:
            is_enough.set()
            await asyncio.sleep(60)
        return await sight_of(user)

    monkeypatch.setattr(module, "_sight_of", counted)
    monkeypatch.setattr(module, "RIGHTS_AGAIN_S", 0.2)
    assert module.sockets._watch
    module.sockets._watch.cancel()
    module.sockets._watch = asyncio.create_task(module.sockets._watch_rights())
    began_s = time.monotonic()
    await asyncio.wait_for(is_enough.wait(), 5)
    assert time.monotonic() - began_s > 0.3  # Two rounds, one question each.
    for page in pages:
        await page.disconnect()


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "full", "groups": "mail"}',
        '{"type": "full", "groups": [1]}',
        '{"type": "full", "groups": ["a\\u0000"]}',
        '{"type": "full", "groups": ["\\ud800"]}',
        '{"type": "full", "folders": [""]}',
        '{"type": "full", "filter": null}',
        '{"type": "full", "totals": 1}',
        json.dumps({"type": "full", "groups": [str(number) for number in range(201)]}),
        json.dumps({"type": "full", "filter": "x" * 256}),
        '{"type": "full", "progress": {"17": 1}}',
        '{"type": "full", "progress": [17]}',
        '{"type": "full", "progress": ["-1"]}',
        '{"type": "full", "progress": ["9223372036854775808"]}',
        json.dumps({"type": "full", "progress": [str(number) for number in range(201)]}),
    ],
)
def test_what_no_page_would_ask_is_not_understood(text):
    assert module.word_of(text) is None
