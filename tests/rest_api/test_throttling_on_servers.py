"""The limits on our servers, where the shortest way to a claim is taken."""

import pytest

from .api import Api

# Named here too, or the database would not be there when these tests run alone.
pytestmark = pytest.mark.usefixtures("transactional_db")

CLAIM = {"clientid": 1, "group": "mail"}


def test_a_server_says_when_to_come_again(server, settings):
    settings.TASKSTORE_TOKEN_RATE = 1
    headers = {"Authorization": f"Bearer {Api().secret}"}
    first, second = [server.request("POST", "/claim", json=CLAIM, headers=headers) for _ in range(2)]
    assert first.status_code == 200
    assert (second.status_code, second.reason_phrase) == (429, "Too Many Requests")
    assert second.headers["Retry-After"] == "1"
