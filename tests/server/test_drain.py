"""Between the word to end and the end."""

import signal

from .harness import wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}


def test_a_server_that_was_told_to_end_serves_on_but_is_not_ready(store, command):
    with store.up(command=command, TASKSTORE_DRAIN_SECONDS="20") as server:
        server.tell(signal.SIGTERM)
        wait_for(lambda: server.ask("GET", "/readyz").status_code == 503, "that it is not ready")
        refused = server.ask("GET", "/readyz")
        assert refused.headers["Retry-After"] == "1"
        assert "stopping" in refused.json()["detail"]
        assert server.ask("GET", "/healthz").status_code == 200
        assert server.ask("POST", "/update", store.token, json=ADD).json()["error"] is None


def test_it_ends_by_itself_when_that_time_is_over(store, command):
    with store.up(command=command, TASKSTORE_DRAIN_SECONDS="1") as server:
        assert server.end() == 0
        assert server.complaints == ""
