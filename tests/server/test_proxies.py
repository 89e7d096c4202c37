"""The examples for HAProxy and nginx: they end TLS before a running store, and everything goes through."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from websockets.sync.client import connect

from lab.testing.debian import program
from tests.certificates import make_certificate
from tests.served import free_port

from .conftest import new_store
from .deployed import text_of
from .harness import START_SECONDS, wait_for
from .test_grpc import SERVICE, SERVING, WAIT, Client

pytestmark = pytest.mark.once

# Where a process of any user may write.
NGINX = """http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
"""
PASSWORD = "correct horse battery"


class Proxied:
    """A store behind a proxy, as somebody elsewhere reaches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http, self.https, self.rest, self.grpc = (free_port() for _ in range(4))
        self.url = f"https://127.0.0.1:{self.https}"
        self.certificate, self.key = make_certificate(folder)
        (folder / "both.pem").write_bytes(self.certificate.read_bytes() + self.key.read_bytes())
        self.trust = ssl.create_default_context(cafile=str(self.certificate))
        self.token = self.password = ""  # Of programs on the machine, and of the first admin, once there is a store.

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=self.trust, timeout=START_SECONDS, trust_env=False)

    def ask(self, method: str, path: str, **asked: Any) -> httpx.Response:
        with self.browser() as client:
            return client.request(method, path, headers={"Authorization": f"Bearer {self.token}"}, **asked)

    def is_reached(self) -> bool:
        with suppress(httpx.TransportError):
            return self.ask("GET", "/readyz").status_code == 200
        return False

    @contextmanager
    def called(self) -> Iterator[Client]:
        credentials = grpc.ssl_channel_credentials(self.certificate.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{self.https}", credentials) as channel:
            yield Client(channel, self.token)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match
    return match[1]


def haproxy(proxied: Proxied) -> tuple[list[str], list[str]]:
    """The commands that check its configuration, and that run it."""
    file = proxied.folder / "haproxy.cfg"
    file.write_text(
        text_of(
            "haproxy.cfg",
            **{
                ":443": f"127.0.0.1:{proxied.https}",
                ":80\n": f"127.0.0.1:{proxied.http}\n",
                ":8048": f":{proxied.rest}",
                ":50053": f":{proxied.grpc}",
                "/etc/haproxy/certificates/certificate.pem": str(proxied.folder / "both.pem"),
            },
        )
    )
    path = program(("haproxy",), ("haproxy",))
    return [path, "-c", "-f", str(file)], [path, "-db", "-f", str(file)]


def nginx(proxied: Proxied) -> tuple[list[str], list[str]]:
    file = proxied.folder / "nginx.conf"
    file.write_text(
        text_of(
            "nginx.conf",
            **{
                # Else root's nginx would serve as another user, who may not write here.
                "user www-data;": "user root;" if os.geteuid() == 0 else "",
                "/run/nginx.pid": str(proxied.folder / "nginx.pid"),
                "http {\n": NGINX.format(folder=proxied.folder),
                "listen 443": f"listen 127.0.0.1:{proxied.https}",
                "listen 80;": f"listen 127.0.0.1:{proxied.http};",
                ":8048": f":{proxied.rest}",
                ":50053": f":{proxied.grpc}",
                "/etc/nginx/certificates/certificate.pem": str(proxied.certificate),
                "/etc/nginx/certificates/key.pem": str(proxied.key),
            },
        )
    )
    path = program(("nginx",), ("nginx",))
    words = [path, "-c", str(file), "-g", "daemon off; error_log stderr warn;"]
    return [*words, "-t", "-q"], words


@pytest.fixture(scope="module", params=[haproxy, nginx], ids=lambda kind: kind.__name__)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    place = Proxied(tmp_path_factory.mktemp(request.param.__name__))
    check, command = request.param(place)
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (checked.returncode, re.findall("(?i)warning.*|alert.*", checked.stderr)) == (0, []), checked.stderr
    own = {"TASKSTORE_PUBLIC_URL": place.url, "TASKSTORE_PROXIES": "1"}
    with (
        new_store(place.folder) as store,
        store.up("--port", str(place.rest), "--grpc-port", str(place.grpc), **own) as server,
    ):
        place.token = store.token
        place.password = found(r"with the password (\S+)", server.said)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                wait_for(place.is_reached, "the way through the proxy")
                yield place
            finally:
                process.terminate()


def test_a_task_is_added_and_found_whatever_its_group_is_called(proxied):
    name = "pay/eu %2F ü"
    add = {"clientid": 1, "adds": [{"group": name, "data": "hello"}]}
    assert proxied.ask("POST", "/update", json=add).json()["error"] is None
    # Quoted as a client does it that keeps the name together.
    [task] = proxied.ask("GET", "/group/pay%2Feu%20%252F%20%C3%BC").json()
    assert (task["group"], task["data"]) == (name, "hello")


def test_a_claim_waits_through_it(proxied):
    claim = {"clientid": 2, "group": "waiting", "wait": 60_000}
    before = waiting_claims(proxied)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(proxied.ask, "POST", "/claim", json=claim)
        wait_for(lambda: waiting_claims(proxied) > before, "the claim")
        add = {"clientid": 1, "adds": [{"group": "waiting", "data": "now"}]}
        proxied.ask("POST", "/update", json=add)
        [task] = waiting.result().json()["tasks"]
    assert task["data"] == "now"


def waiting_claims(proxied):
    return float(found(r"\ntaskstore_waiting_claims (\S+)\n", proxied.ask("GET", "/metrics").text))


def test_the_limits_of_the_store_are_told_by_the_store(proxied):
    ids = range(10**15, 10**15 + 1_000)  # As long as they get.
    assert proxied.ask("GET", "/tasks/" + ",".join(map(str, ids))).json() == [None] * 1_000
    answer = proxied.ask("POST", "/update", content=b" " * (64 * 2**20 + 1))
    assert (answer.status_code, "at most 64 MiB" in answer.text) == (413, True)


def test_people_sign_in_and_see_what_happens(proxied):
    with proxied.browser() as browser:
        sign_in(browser, proxied)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        headers = {"Cookie": cookies, "Origin": proxied.url}
        address = f"wss://127.0.0.1:{proxied.https}/console/live"
        with connect(address, ssl=proxied.trust, additional_headers=headers, proxy=None) as socket:
            socket.send('{"type": "full", "totals": true}')
            assert "full" in socket.recv(START_SECONDS)


def sign_in(browser, proxied):
    """As the first admin, with a password of their own."""
    chosen = {"new_password1": PASSWORD, "new_password2": PASSWORD}
    opened = posted(browser, "/console/login", username="admin", password=proxied.password)
    if opened.status_code == 200:  # The password was chosen before: the test is repeated.
        assert posted(browser, "/console/login", username="admin", password=PASSWORD).status_code == 302
        return
    assert opened.status_code == 302
    assert posted(browser, opened.headers["Location"], **chosen).status_code == 302


def posted(browser, path, **fields):
    page = browser.get(path, follow_redirects=True)
    secret = found(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    form = {"csrfmiddlewaretoken": secret, **fields}
    return browser.post(page.url, data=form, headers={"Origin": str(browser.base_url).rstrip("/")})


def test_clients_of_grpc_come_by_the_same_port(proxied):
    with proxied.called() as client, ThreadPoolExecutor() as threads:
        assert client.status(SERVICE) == SERVING
        waiting = threads.submit(client.wait().result)
        assert len(client.add()) == 1
        assert waiting.result(START_SECONDS).task.group == WAIT.group


def test_what_a_client_says_of_its_address_is_not_believed(proxied):
    """Else who guesses passwords would choose another address for each try."""
    with proxied.browser() as browser:
        for number in range(11):
            forged = {"X-Forwarded-For": f"192.0.2.{number}", "Origin": proxied.url}
            page = browser.get("/console/login", headers=forged)
            secret = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
            if not secret:
                break
            form = {"csrfmiddlewaretoken": secret[1], "username": "bob", "password": "wrong"}
            answer = browser.post("/console/login", data=form, headers=forged)
    assert answer.status_code == 429


def test_plain_text_leads_to_tls(proxied):
    answer = httpx.get(f"http://127.0.0.1:{proxied.http}/console/", trust_env=False)
    assert answer.status_code == 308
    assert answer.headers["Location"].startswith("https://127.0.0.1")
