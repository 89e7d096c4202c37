"""The texts that go over the socket."""

import json
import time

import pytest

from tasks_app.counts import Counts
from tasks_app.live import messages
from tasks_app.live.messages import Snapshot

pytestmark = pytest.mark.once


def snapshot_of(groups: dict[str, Counts]) -> Snapshot:
    return Snapshot(at_ms=1_000_000, read_at_s=time.monotonic(), groups=groups)


def test_a_few_groups_fit_one_message():
    [text] = messages.full(7, snapshot_of({"mail": Counts(ready=3, claimed=2, expired=1, scheduled=5, failed=4)}))
    assert json.loads(text) == {"seq": 7, "at": 1_000_000, "age": 0, "full": {"mail": [3, 2, 1, 5, 4]}, "left": 0}


@pytest.mark.parametrize("name", ["mail/{}", "\N{PILE OF POO}" * 240 + "{}", "\x01" * 240 + "{}"])
def test_many_groups_come_in_messages_that_the_server_carries(name):
    groups = {name.format(number): Counts(ready=number) for number in range(2_000)}
    texts = messages.full(7, snapshot_of(groups))
    told = [json.loads(text) for text in texts]
    assert max(len(text.encode()) for text in texts) < 64 * 1024
    assert [message["left"] for message in told] == list(reversed(range(len(texts))))
    assert {group: numbers[0] for message in told for group, numbers in message["full"].items()} == {
        group: counts.ready for group, counts in groups.items()
    }


def test_no_groups_are_a_message_too():
    [text] = messages.full(7, snapshot_of({}))
    assert json.loads(text)["full"] == {}


def test_a_group_that_is_gone_is_null():
    [text] = messages.delta(8, snapshot_of({}), {"mail": None})
    assert json.loads(text)["delta"] == {"mail": None}
