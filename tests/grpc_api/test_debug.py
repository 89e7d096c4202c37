"""Debug, with every documented outcome."""

from grpc import StatusCode

from tasks_app.models import Scope

from .client import outcome
from .test_query import at
from .test_update import refused


def test_it_lists_the_tasks_of_a_group_also_those_that_are_leased_or_later(client):
    client.create("mail", "reports")
    client.query("mail", own_for_s=60)
    client.create("mail", not_before=at(2**40))
    answer = client.debug("mail")
    assert ([task.group for task in answer.tasks], answer.num_tasks) == (["mail", "mail"], 2)


def test_without_a_group_it_lists_all_and_at_most_so_many(client):
    ids = client.create("mail", "reports", "")
    assert client.ids() == ids
    answer = client.debug(limit=2)
    assert ([task.id for task in answer.tasks], answer.num_tasks) == (ids[:2], 3)
    assert len(client.debug(limit=2**64 - 1).tasks) == 3


def test_more_than_an_answer_should_hold_is_refused(client, settings):
    client.create("mail", "mail", error="torn" * 100)
    settings.TASKSTORE_MAX_ANSWER_BYTES = 900
    assert outcome(refused(client.debug))[0] is StatusCode.RESOURCE_EXHAUSTED
    assert len(client.debug(limit=1).tasks) == 1


def test_a_token_sees_its_groups_only(connect, client):
    [mail], _ = client.create("mail"), client.create("reports")
    reader = connect(Scope.READ, "mail")
    answer = reader.debug()
    assert ([task.id for task in answer.tasks], answer.num_tasks) == ([mail], 1)
    assert outcome(refused(reader.debug, "reports"))[0] is StatusCode.PERMISSION_DENIED
