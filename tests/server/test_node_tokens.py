"""The token of a server for programs beside it: it lives while the server does, and expires when a node is lost."""

import threading
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import Scope, Token
from taskstore_project.serving import starting

from .conftest import IS_POSTGRESQL

HOUR = timedelta(hours=1)


def test_it_expires_within_an_hour_unless_it_is_renewed(db):
    token, secret = tokens.create_for_node("web-1:8048", Scope.OPERATE)
    assert token.name == "this machine (web-1:8048)"
    first = token.expires_at
    assert first
    assert timezone.now() < first < timezone.now() + HOUR
    Token.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert tokens.valid(secret) is None
    assert tokens.renew(token)
    assert tokens.valid(secret) == token
    renewed = Token.objects.get().expires_at
    assert renewed
    assert first < renewed < timezone.now() + HOUR


def test_a_revoked_one_is_not_renewed(db):
    token, secret = tokens.create_for_node("web-1:8048", Scope.OPERATE)
    tokens.revoke(token)
    assert not tokens.renew(token)
    assert tokens.valid(secret) is None


def test_those_of_nodes_that_were_lost_are_deleted_by_the_next_start(db):
    lost, _ = tokens.create_for_node("web-1:8048", Scope.OPERATE)
    away, _ = tokens.create_for_node("web-2:8048", Scope.OPERATE)
    mine, _ = tokens.create("mailer", Scope.WORK, expires_at=timezone.now() + HOUR)
    Token.objects.filter(pk__in=[lost.pk, mine.pk]).update(expires_at=timezone.now() - timedelta(days=2))
    Token.objects.filter(pk=away.pk).update(expires_at=timezone.now() - timedelta(hours=2))
    new, _ = tokens.create_for_node("web-3:8048", Scope.OPERATE)
    assert set(Token.objects.all()) == {away, mine, new}


def test_a_running_server_renews_it_also_after_an_outage(transactional_db, monkeypatch, caplog):
    monkeypatch.setattr(starting, "RENEWED_EVERY_S", 0.02)
    monkeypatch.setattr(starting, "RENEWED_AGAIN_S", 0.01)
    token, secret = tokens.create_for_node("web-1:8048", Scope.OPERATE)
    Token.objects.update(expires_at=timezone.now())
    was_renewed, attempts, renew = threading.Event(), [], tokens.renew

    def failing_at_first(token):
        attempts.append(token)
        if len(attempts) < 4:
            raise OperationalError("the database is away")
        result = renew(token)
        was_renewed.set()
        return result

    monkeypatch.setattr(tokens, "renew", failing_at_first)
    with starting.renewed(token):
        assert was_renewed.wait(30)
    assert tokens.valid(secret) == token
    assert caplog.text.count("can't renew the token") == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "token of this node"]


@pytest.mark.parametrize("command", ["up", *(["serve --workers 2"] if IS_POSTGRESQL else [])])
def test_the_audit_names_the_node_that_made_it_and_used_it(store, command):
    with store.up(command=command) as server:
        port = server.address[1]
        server.ask("POST", "/groups/mail/pause", store.token, json={"reason": "a test"})
        entries = server.ask("GET", "/audit", store.token).json()
        listed = store.manage("token", "list").stdout
    pause, create = [entry for entry in entries["entries"] if entry["action"] in ("pause", "create token")][:2]
    assert pause["by"].startswith("token:this machine (")
    assert pause["by"].endswith(f":{port})")
    assert create["by"] == "node:" + pause["by"].removeprefix("token:this machine (").removesuffix(")")
    [line] = [line for line in listed.splitlines() if "this machine" in line]
    assert str(port) in line
