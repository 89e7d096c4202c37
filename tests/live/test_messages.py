"""The texts that go over the socket."""

import json
import time

import pytest

from tasks_app.live import messages
from tasks_app.live.messages import Snapshot, Watch
from tasks_app.writer.totals import EVERYTHING, Numbers, Part, Summary
from taskstore.types.progress import Progress
from taskstore.types.tasks import State

pytestmark = pytest.mark.once

MAIL = Numbers(tasks=21, leases=3, errors=9, finished=1, retrying=4, failed=5, claimed=2, later=6, put_off=1)
SUM = Summary(MAIL, 7, 999_000, dict(zip(State, (1, 2, 3, 4, 5, 6, 7), strict=True)))


def snapshot_of(groups: dict[str, Numbers]) -> Snapshot:
    return Snapshot(at_ms=1_000_000, read_at_s=time.monotonic(), groups=groups)


def test_progress_has_its_text_for_those_alone_who_may_see_payloads():
    progress = {17: Progress(done=0.42, text="page 7 of 20", at_ms=999_000)}
    for with_texts, text in ((True, "page 7 of 20"), (False, "")):
        watch = Watch(progress=frozenset({17, 18}), with_texts=with_texts)
        content = messages.content_of(watch, {}, {}, progress)
        told = json.loads(messages.delta(8, snapshot_of({}), content))
        assert told["delta"] == {"progress": {"17": [0.42, text, 999_000], "18": None}}


def test_a_page_gets_what_it_shows():
    groups = {"mail": MAIL, "letters": Numbers(tasks=1)}
    content = messages.content_of(Watch(groups=frozenset({"mail", "gone"})), groups, {EVERYTHING: SUM})
    text = messages.full(7, snapshot_of(groups), content)
    assert json.loads(text) == {
        "seq": 7, "at": 1_000_000, "age": 0, "full": {"groups": {"mail": [3, 2, 1, 5, 4, 5, 1, 9], "gone": None}},
    }  # fmt: skip


def test_totals_and_folders_are_those_of_the_filter():
    watch = Watch(folders=frozenset({"mail/"}), searched="in", totals=True)
    assert set(watch.parts) == {EVERYTHING, Part("mail/", "in"), Part(searched="in")}
    content = messages.content_of(watch, {}, dict.fromkeys(watch.parts, SUM))
    assert json.loads(messages.full(7, snapshot_of({}), content))["full"] == {
        "folders": {"mail/": [7, 3, 2, 1, 5, 4, 5, 1, 9]},
        "total": [3, 2, 1, 5, 4, 5, 1, 9],
        "holding": [7, 1, 2, 3, 4, 5, 6, 7],
        "found": 7,
        "summed": 999_000,
    }


def test_only_what_is_another_now_is_sent():
    watch = Watch(groups=frozenset({"mail", "reports"}), totals=True)
    before = messages.content_of(watch, {"mail": Numbers(tasks=1), "reports": Numbers(tasks=2)}, {EVERYTHING: SUM})
    after = messages.content_of(watch, {"reports": Numbers(tasks=2)}, {EVERYTHING: SUM._replace(at_ms=1)})
    changed = messages.difference(before, after)
    assert json.loads(messages.delta(8, snapshot_of({}), changed))["delta"] == {"groups": {"mail": None}, "summed": 1}
