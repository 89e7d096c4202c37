import pytest
from channels.testing import HttpCommunicator
from django.test import Client

from tasks_app.models import Task
from taskstore_project.asgi import application

from ..live.loop import in_event_loop

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


@pytest.mark.parametrize("host", ["tasks.example.org", "rebound.example", "rebound.example:8048", "192.0.2.1"])
def test_a_foreign_host_is_refused(client, host):
    for answer in (update(client, host=host), client.get("/groups", headers={"host": host})):
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/json")
        assert answer.json()["detail"].startswith("Host: must name this machine, such as localhost")
    assert not Task.objects.exists()


def test_a_browser_is_told_so_by_a_page(client):
    answer = client.get("/console/", headers={"host": "rebound.example", "accept": "text/html"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert "Host: must name this machine, such as localhost" in answer.content.decode()


@in_event_loop
async def test_a_foreign_host_is_refused_on_the_short_way_too(settings):
    settings.TASKSTORE_NO_AUTH = True
    headers = [(b"host", b"rebound.example"), (b"content-type", b"application/json")]
    asked = HttpCommunicator(application, "POST", "/update", b'{"clientid": 1, "adds": [{"group": "mail"}]}', headers)
    answer = await asked.get_response()
    assert answer["status"] == 400
    assert b"Host: must name this machine" in answer["body"]


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
