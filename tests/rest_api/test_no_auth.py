import pytest
from django.test import Client

from tasks_app.models import Task

HOME = "127.0.0.1:8048"


@pytest.fixture
def client(db, settings):
    settings.TASKSTORE_NO_AUTH = True
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "tasks.example.org"]
    return Client(headers={"host": HOME})


def update(client, **headers):
    body = {"clientid": 1, "adds": [{"group": "mail"}]}
    return client.post("/update", body, content_type="application/json", headers=headers)


def test_nobody_needs_a_token(client):
    assert update(client).status_code == 200
    assert client.get("/groups").json() == ["mail"]


@pytest.mark.parametrize("host", ["localhost:8048", "127.0.0.1", "[::1]:8048"])
def test_the_server_answers_to_the_names_of_this_machine(client, host):
    assert update(client, host=host).status_code == 200


@pytest.mark.parametrize(("host", "status"), [("tasks.example.org", 403), ("rebound.example", 400)])
def test_a_foreign_host_is_refused(client, host, status):
    assert update(client, host=host).status_code == status
    assert client.get("/groups", headers={"host": host}).status_code == status
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    "origin", ["https://elsewhere.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8048", ""]
)
def test_a_page_of_another_site_is_refused(client, origin):
    assert update(client, origin=origin).status_code == 403
    assert client.get("/groups", headers={"origin": origin}).status_code == 403
    assert not Task.objects.exists()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_that_says_it_comes_from_elsewhere_is_refused(client, site):
    assert client.get("/groups", headers={"sec-fetch-site": site}).status_code == 403


def test_its_own_pages_get_in(client):
    assert update(client, origin=f"http://{HOME}", **{"sec-fetch-site": "same-origin"}).status_code == 200


def test_with_tokens_an_origin_alone_opens_and_closes_nothing(client, settings):
    settings.TASKSTORE_NO_AUTH = False
    assert update(client).status_code == 401
