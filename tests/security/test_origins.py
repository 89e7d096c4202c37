"""Pages of which sites may open a websocket."""

import pytest

from taskstore_project.websocket_origins import is_own_origin

pytestmark = pytest.mark.once

PUBLIC = "https://tasks.example.org"


@pytest.fixture(autouse=True)
def hosts(settings):
    settings.TASKSTORE_PUBLIC_URL = ""
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "tasks.example.org"]


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:8048", "localhost:8048", True),
        ("http://LocalHost:8048", "localhost:8048", True),
        ("http://127.0.0.1:8048", "localhost:8048", True),
        ("http://[::1]:8048", "[::1]:8048", True),
        ("http://localhost:9000", "localhost:9000", True),  # By a tunnel.
        ("http://localhost", "localhost", True),
        ("http://localhost:80", "localhost", True),
        # The cookie of the console goes to every port of a host.
        ("http://localhost:9000", "localhost:8048", False),
        ("https://localhost:8048", "localhost:8048", False),
        ("http://evil.example:8048", "localhost:8048", False),
        ("http://evil.example:8048", "evil.example:8048", False),
        ("http://localhost.evil.example:8048", "localhost:8048", False),
        ("http://localhost:8048@evil.example", "localhost:8048", False),
        ("http://localhost:x", "localhost:8048", False),
        ("http://[", "localhost:8048", False),
        ("http://localhost:8048", "", False),
        ("null", "localhost:8048", False),
        ("", "localhost:8048", False),
    ],
)
def test_without_a_public_address_a_page_is_of_this_machine_and_of_the_same_port(origin, host, is_own):
    assert is_own_origin(origin, host) == is_own


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        (PUBLIC, True),
        ("https://TASKS.example.org", True),
        (f"{PUBLIC}:443", True),
        (f"{PUBLIC}:8443", False),
        ("http://tasks.example.org", False),
        ("https://example.org", False),
        ("https://sub.tasks.example.org", False),
        ("http://localhost:8048", False),
        ("http://127.0.0.1:8048", False),
        ("null", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("host", ["tasks.example.org", "localhost:8048"])
def test_with_a_public_address_a_page_is_of_that_one_alone(settings, origin, host, is_own):
    settings.TASKSTORE_PUBLIC_URL = PUBLIC
    assert is_own_origin(origin, host) == is_own
