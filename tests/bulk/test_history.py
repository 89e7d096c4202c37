"""What history tells of a task that was purged and came back."""

import pytest

from tasks_app import bulk
from tasks_app.bulk import Purge
from tasks_app.core.actors import Actor
from tasks_app.models import Task
from tasks_app.reading import history

from ..console.store import add, claim
from .test_operations import begin

pytestmark = pytest.mark.django_db


@pytest.fixture
def returned():
    """A task that was added, purged and brought back, and claimed since: its ids."""
    [added] = add()
    bulk.undo(begin(Purge, typed="mail"), Actor("olaf"))
    back = Task.objects.get_queryset().get()
    [now] = claim()
    return added.id, back.id, now.id


def test_its_chain_goes_on_from_its_first_id(returned):
    for task_id in returned:
        chain = history.chain_of(task_id)
        assert chain
        assert chain.living
        assert (chain.origin, chain.living.id) == (returned[0], returned[-1])
        assert [step.id for step in chain.ended] == list(returned[:-1])
        assert [(step.ending, step.successor) for step in chain.ended] == [("purged", None), ("claimed", returned[-1])]
        assert chain.is_whole
