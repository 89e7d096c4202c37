"""Pages of which sites may open a websocket."""

import pytest

from tasks_app.live import asgi

pytestmark = pytest.mark.once

PUBLIC = "https://tasks.example.org"


def is_own_origin(origin, host, scheme="ws", **headers):
    headers = {"origin": origin, "host": host, **headers}
    sent = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return asgi.is_own_origin({"scheme": scheme, "headers": sent})


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


def test_a_page_over_tls_opens_a_websocket_over_tls(settings):
    page, host = PUBLIC, "tasks.example.org"
    assert is_own_origin(page, host, "wss")
    assert not is_own_origin(page.replace("https", "http"), host, "wss")
    assert not is_own_origin(page, host)
    # A project behind a proxy that speaks TLS.
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert is_own_origin(page, host, x_forwarded_proto="https")
    assert not is_own_origin(page, host, x_forwarded_proto="http")
    settings.USE_X_FORWARDED_HOST = True
    assert is_own_origin(page, "inside:8000", x_forwarded_proto="https", x_forwarded_host=host)


def test_a_page_whose_forms_are_trusted_is_trusted(settings):
    settings.CSRF_TRUSTED_ORIGINS = ["https://shop.example.org"]
    assert is_own_origin("https://shop.example.org", "inside:8000")
    assert not is_own_origin("https://shop.example.org:8443", "inside:8000")
    assert not is_own_origin("null", "inside:8000")


def test_while_debug_is_on_hosts_of_this_machine_are_allowed(settings):
    settings.ALLOWED_HOSTS = []
    assert not is_own_origin("http://localhost:8000", "localhost:8000")
    settings.DEBUG = True
    assert is_own_origin("http://localhost:8000", "localhost:8000")
    assert not is_own_origin("http://evil.example:8000", "localhost:8000")


def test_where_every_host_is_allowed_a_page_of_another_one_is_still_turned_away(settings):
    settings.ALLOWED_HOSTS = ["*"]
    assert is_own_origin("https://shop.example", "shop.example", "wss")
    assert not is_own_origin("https://evil.example", "shop.example", "wss")
    assert not is_own_origin("http://evil.example:8000", "localhost:8000")
