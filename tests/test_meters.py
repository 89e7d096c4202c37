"""What the processes of a server have done, in memory that they share."""

import os
from contextlib import suppress

import pytest
from django.db import transaction

from tasks_app.core.meters import LEVELS, REASONS, Meters, meters, shared_memory
from tasks_app.core.tally import Work
from tasks_app.models import Task
from taskstore.errors import CommitRefused, InvalidInput, KeyReused, StoreBusy
from taskstore.types.tasks import NewTask, Refusal

pytestmark = pytest.mark.once


@pytest.fixture(params=["memory", "file"])
def crew(request, monkeypatch):
    """Three processes of one server."""
    if request.param == "file":
        monkeypatch.delattr(os, "memfd_create")
    memory = shared_memory(3)
    members = [Meters() for _ in range(3)]
    for row, member in enumerate(members):
        member.join(memory, 3, row)
    os.close(memory)
    return members


def test_whoever_is_asked_knows_what_all_have_done(crew):
    for member in crew:
        member.note_work(Work(commits=2, claimed=3))
        member.note_batch(5, 0.002)
        member.add("gone")
    assert [member.sum_of("commits") for member in crew] == [6, 6, 6]
    assert (crew[0].sum_of("claimed"), crew[1].sum_of("done"), crew[2].sum_of("gone")) == (9, 0, 3)
    assert sum(crew[0].buckets_of("batch_us")) == 3
    assert crew[0].sum_of("batch_us_sum") == 6_000


def test_what_has_died_leaves_what_it_did_but_not_what_it_had_to_do(crew):
    for member in crew:
        member.note_work(Work(commits=1))
        for level in LEVELS:
            member.set(level, 7)
    crew[0].forget_levels(1)
    assert crew[0].sum_of("commits") == 3
    assert [crew[0].sum_of(level) for level in LEVELS] == [14] * len(LEVELS)


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (CommitRefused(Refusal(changes=(1, 2), deletes=(3,))), {"gone"}),
        (CommitRefused(Refusal(depends=(1,), owned=(2,), bugs=("?",))), {"depends", "owned", "bugs"}),
        (KeyReused(), {"key_reused"}),
        (StoreBusy(), {"busy"}),
        (InvalidInput({"clientid": ["?"]}), set()),
    ],
)
def test_a_refusal_counts_once_for_each_reason(error, counted):
    meters = Meters()
    meters.note_refusal(error)
    assert {reason: meters.sum_of(reason) for reason in REASONS if meters.sum_of(reason)} == dict.fromkeys(counted, 1)


@pytest.mark.usefixtures("transactional_db")
def test_without_a_writer_too_only_what_is_committed_was_done():
    def commit() -> None:
        Task.objects.commit(owner=1, adds=[NewTask(group="mail")] * 3)

    before = meters.sum_of("commits"), meters.sum_of("entered")
    with suppress(ZeroDivisionError), transaction.atomic():
        commit()
        raise ZeroDivisionError
    assert (meters.sum_of("commits"), meters.sum_of("entered")) == before
    commit()
    assert (meters.sum_of("commits"), meters.sum_of("entered")) == (before[0] + 1, before[1] + 3)
