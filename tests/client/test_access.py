"""Where the address and the token come from."""

import json
import logging

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import Client, NotAllowed
from taskstore.client.transport import Access, proxy_to

OF_FILE = "ts_file"
HERE = "http://127.0.0.1:8050"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    for name in ("TASKSTORE_URL", "TASKSTORE_TOKEN", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TASKSTORE_DATA", str(tmp_path))
    return tmp_path


def write(folder, url=HERE, token=OF_FILE):
    (folder / "server.json").write_text(json.dumps({"url": url, "grpc": "", "token": token}))


def found(*asked, **named):
    access = Access(*asked, **named)
    return access.url, access.token


@pytest.mark.once
def test_the_argument_then_the_environment_then_the_file_of_a_server_here(folder, monkeypatch):
    assert found() == ("http://127.0.0.1:8048", "")
    write(folder)
    assert found() == (HERE, "ts_file")
    assert found(token="") == (HERE, "")
    monkeypatch.setenv("TASKSTORE_URL", "https://tasks.example.org/")
    monkeypatch.setenv("TASKSTORE_TOKEN", "ts_environment")
    assert found() == ("https://tasks.example.org", "ts_environment")
    assert found("https://other.example.org", token="ts_argument") == ("https://other.example.org", "ts_argument")


@pytest.mark.once
def test_in_a_checkout_and_beside_the_users_other_data(folder, monkeypatch):
    monkeypatch.delenv("TASKSTORE_DATA")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    (folder / "taskstore").mkdir()
    write(folder / "taskstore", token="ts_installed")
    assert found() == (HERE, "ts_installed")
    (folder / "var").mkdir()
    write(folder / "var", token="ts_checkout")
    assert found() == (HERE, "ts_checkout")


@pytest.mark.once
def test_the_token_of_the_file_is_for_its_server_only(folder):
    write(folder)
    assert found("http://localhost:8050") == ("http://localhost:8050", "ts_file")
    assert found("http://127.0.0.1:8051") == ("http://127.0.0.1:8051", "")
    assert found("https://tasks.example.org:8050") == ("https://tasks.example.org:8050", "")


@pytest.mark.once
def test_a_token_in_plain_text_to_another_machine_is_warned_of(caplog):
    for quiet in (HERE, "http://[::1]:8048", "https://tasks.example.org"):
        Access(quiet, "ts_mine")
    Access("http://tasks.example.org", "")
    assert caplog.records == []
    Access("http://tasks.example.org", "ts_mine")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "ts_mine" not in record.getMessage()


@pytest.mark.once
def test_the_proxy_of_the_environment_leads_to_other_machines_only(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.example.org")
    monkeypatch.setenv("no_proxy", "near.example.org")
    assert proxy_to("https://tasks.example.org") == proxy_to("http://tasks.example.org") == "http://proxy.example.org"
    assert proxy_to("https://near.example.org") is proxy_to(HERE) is proxy_to("http://[::1]:8048") is None


def test_a_client_goes_on_with_the_token_of_the_servers_next_start(served, folder, monkeypatch):
    monkeypatch.setattr(tokens, "TRUSTED_S", -1)
    old, secret = tokens.create_for_node("a", Scope.OPERATE)
    write(folder, served.url, secret)
    with Client() as client:
        assert client.groups() == []
        old.delete()
        (folder / "server.json").unlink()
        with pytest.raises(NotAllowed):
            client.groups()
        _, secret = tokens.create_for_node("a", Scope.OPERATE)
        write(folder, served.url, secret)
        assert client.groups() == []
