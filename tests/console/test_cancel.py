"""Cancel in the console: the question, what it says afterwards, and the pages of what was cancelled."""

import pytest

from tasks_app.console.timeline import WORDS
from taskstore.types.tasks import Ending
from tests.jobs_store.jobs import enqueued, find, started, succeeded

from .store import add, claim

pytestmark = pytest.mark.django_db


def asked(person, path, status=200):
    response = person.get(f"/console/{path}")
    assert response.status_code == status
    return response.content.decode()


def agreed(person, task_id):
    return person.post(f"/console/task/{task_id}/cancel", {"reason": "no longer wanted"}, follow=True)


def test_a_claimed_task_is_cancelled_and_its_page_says_by_whom_and_why(operator):
    [task] = add()
    [held] = claim()
    assert "Its worker ends it within seconds" in asked(operator, f"task/{held.id}/cancel")
    text = agreed(operator, held.id).content.decode()
    assert f"Cancelled task {held.id}." in text
    text = asked(operator, f"task/{task.id}")
    assert "Cancelled by" in text
    assert "no longer wanted" in text


def test_a_job_is_cancelled_by_its_first_id_and_stays_with_who_and_why(operator):
    job_id = enqueued()
    started()
    assert f"Cancelled job {job_id}." in agreed(operator, job_id).content.decode()
    job = find(job_id)
    assert job.error.message.endswith(": no longer wanted")
    assert "no longer wanted" in asked(operator, f"jobs/{job_id}")
    assert "Cancelled, kept in" in asked(operator, f"task/{job.task}")


def test_of_what_has_ended_it_says_so_and_changes_nothing(operator):
    job_id = succeeded()
    assert "Nothing to cancel: the job has ended already" in asked(operator, f"task/{job_id}/cancel")
    response = agreed(operator, job_id)
    assert response.status_code == 422
    assert "Nothing was changed" in response.content.decode()
    assert find(job_id).status == "succeeded"
    asked(operator, "task/999999/cancel", status=404)


def test_every_way_to_end_has_its_words():
    assert set(WORDS) == set(Ending)
