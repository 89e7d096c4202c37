"""An operation changes as many tasks at once as workers hardly notice."""

import pytest

from tasks_app.bulk import running

pytestmark = pytest.mark.once


class Machine:
    """One on which a commit takes a millisecond for each task, and beside which workers do so much."""

    def __init__(self, monkeypatch, *, others):
        self._now_s, self._done, self._others = 0.0, 0, others
        monkeypatch.setattr("tasks_app.bulk.running.monotonic", lambda: self._now_s)
        monkeypatch.setattr(running, "_done_by_writer", lambda: self._done)

    def chunks(self, count):
        """The sizes of so many chunks, and the rest after the last one."""
        own = running.Pace(is_considerate=True)
        sizes, rest_s = [], 0.0
        for _ in range(count):
            own.begin()
            with own.timed():
                self._now_s += own.size / 1_000
                self._done += 1 + self._others
            sizes.append(own.size)
            rest_s = own.rest_s()
        return sizes, rest_s


def test_beside_workers_commits_become_short_and_the_store_is_theirs_in_between(monkeypatch):
    sizes, rest_s = Machine(monkeypatch, others=5).chunks(4)
    assert sizes[0] > sizes[-1] == running.BESIDE_WORKERS_S * 1_000
    assert rest_s == pytest.approx(running.REST * running.BESIDE_WORKERS_S)


def test_alone_it_takes_more_at_once_and_does_not_rest(monkeypatch):
    sizes, rest_s = Machine(monkeypatch, others=0).chunks(4)
    assert sizes[0] < sizes[-1] == running.ALONE_S * 1_000
    assert rest_s == 0
