"""The page of a job in Chromium: it follows the job, and what somebody has closed stays closed."""

import pytest
from playwright.sync_api import expect

from ..jobs_store.jobs import enqueued, finished, started
from ..people import make_user
from .browsing import Person

pytestmark = [pytest.mark.browser, pytest.mark.once]


def test_it_follows_a_job_to_its_end_and_runs_it_again(chromium, live_server):
    person = Person(chromium, live_server.url, make_user("olaf", "admin"))
    job_id = enqueued(args=["ann"])
    task = started()
    page = person.page
    person.go(f"/console/jobs/{job_id}")
    parameters = page.locator("#parameters details").first
    parameters.locator("summary").click()
    expect(parameters).not_to_have_attribute("open", "")
    finished(task, result={"sent": 1})
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(parameters).not_to_have_attribute("open", "")
    page.keyboard.press("r")
    page.get_by_label("Positional arguments").fill('["bob"]')
    page.get_by_role("button", name="Review").click()
    expect(page.locator(".diff .after")).to_have_text('+ "bob"')
    page.get_by_role("button", name="Requeue").click()
    expect(page.get_by_text(f"Requeued job {job_id}.")).to_be_visible()
    expect(page.locator("#parameters")).to_contain_text('"bob"')
