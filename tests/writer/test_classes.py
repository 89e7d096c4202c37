"""Several writers on one group, each of which prefers a class of ids."""

import asyncio

from tasks_app.database.claim_pools import CANDIDATES, Pools
from tasks_app.writer import peers
from tasks_app.writer.peers import Neighbours
from tests.behaviour.databases import only_postgresql


def ids_of(pools, ids):
    pools.note("mail", [(0, [*ids], 1)], taken=())
    return {*pools._pools["mail"].ids}


def test_each_of_two_writers_knows_other_tasks_to_claim():
    ids = range(1, CANDIDATES + 1)
    one, other = Pools(), Pools()
    one.writers, one.own_class = 2, 0
    other.writers, other.own_class = 2, 1
    assert ids_of(one, ids) == {*range(2, CANDIDATES + 1, 2)}
    assert ids_of(one, ids).isdisjoint(ids_of(other, ids))


def test_what_the_others_leave_lying_is_for_all():
    pools = Pools()
    pools.writers, pools.own_class = 2, 0
    few_even = [*range(1, 2 * CANDIDATES - 400, 2), *range(2, 402, 2)]
    assert ids_of(pools, few_even[:CANDIDATES]) == {*few_even[:CANDIDATES]}


def test_alone_it_knows_them_all():
    assert ids_of(Pools(), range(1, CANDIDATES + 1)) == {*range(1, CANDIDATES + 1)}


@only_postgresql
def test_processes_find_out_how_many_they_are(transactional_db, monkeypatch):
    monkeypatch.setattr(peers, "LISTENER", "listener of this test")  # Writers of other tests may still listen.
    monkeypatch.setattr(peers, "SHARED_EVERY_S", 0.01)
    monkeypatch.setattr(peers, "OTHERS_KNOWN_S", 0.0)
    shares = {}

    async def until(condition):
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - What tells is what is tested.
                await asyncio.sleep(0.01)

    def neighbours(name):
        return Neighbours("default", lambda _: None, lambda *share: shares.update({name: share}))

    async def meet():
        ann = neighbours("ann")
        try:
            await until(lambda: shares.get("ann") == (1, 0))
            bob = neighbours("bob")
            await until(lambda: sorted(shares.values()) == [(2, 0), (2, 1)])
            await bob.stop()
            await until(lambda: shares["ann"] == (1, 0))
        finally:
            await ann.stop()

    asyncio.run(meet())


def test_a_claim_chooses_among_the_thousand_that_are_left_and_available_longest():
    pools, left = Pools(), [*range(1, 2 * CANDIDATES + 1)]
    pools.note("mail", [(0, [*left], 0)], ())
    while left:
        _, [task_id] = pools.take("mail", 1) or (0, [0])
        assert task_id in left[:CANDIDATES]
        left.remove(task_id)
    assert pools.take("mail", 1) is None


def test_what_could_not_be_claimed_is_chosen_again_among_as_many():
    pools = Pools()
    pools.note("mail", [(0, [*range(1, CANDIDATES + 3)], 0)], ())
    _, ids = pools.take("mail", 5) or (0, [])
    pools.put_back("mail", ids)
    pool = pools._pools["mail"]
    assert len(pool.ids) == CANDIDATES
    assert {*ids} <= {*pool.ids}
    assert sorted(pool.ids + pool.next_ids) == [*range(1, CANDIDATES + 3)]
