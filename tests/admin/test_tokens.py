"""Tokens in Django's admin: looked at and revoked; their hash is never shown."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import AuditEntry, Scope, Token

from .pages import text_of

pytestmark = pytest.mark.once

TOKENS = "/admin/tasks_app/token/"
ADD = f"{TOKENS}add/"


def revoke(client, *made):
    return client.post(TOKENS, {"action": "revoke", "_selected_action": [token.pk for token in made]}, follow=True)


def test_the_console_makes_new_ones(administrator):
    for answer in (administrator.get(ADD), administrator.post(ADD, {"name": "ann", "scope": "work"})):
        assert answer.url == "/console/settings/tokens/add"
    assert administrator.get(answer.url).status_code == 200
    assert not Token.objects.exists()


def test_it_shows_the_clients_of_a_token(administrator):
    token, _ = tokens.create("ann", Scope.WORK, clients=[17, -4])
    assert "17, -4" in text_of(administrator.get(f"{TOKENS}{token.pk}/change/"))


def test_it_writes_a_revocation_down(administrator):
    revoke(administrator, tokens.create("ann", Scope.WORK)[0])
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.selection) == ("ada", "revoke token", "token ann")


def test_it_lists_what_a_token_may(administrator):
    tokens.create("ann", Scope.READ, ["pay/*", "mail"], timezone.now() + timedelta(days=1))
    assert "ann Read pay/*, mail" in text_of(administrator.get(TOKENS))
    assert "valid" in text_of(administrator.get(TOKENS))


def test_it_shows_no_hash(administrator):
    token, _ = tokens.create("ann", Scope.READ)
    for url in (TOKENS, f"{TOKENS}{token.pk}/change/"):
        page = administrator.get(url)
        assert "ann" in text_of(page)
        assert token.hash not in page.content.decode()


def test_it_revokes_tokens(administrator):
    (ann, secret), (bob, other) = tokens.create("ann", Scope.WORK), tokens.create("bob", Scope.WORK)
    response = revoke(administrator, ann)
    assert "Revoked: ann." in text_of(response)
    assert "revoked" in text_of(administrator.get(f"{TOKENS}{ann.pk}/change/"))
    assert tokens.valid(secret) is None
    assert tokens.valid(other) == bob


def test_it_revokes_once(administrator):
    ann, _ = tokens.create("ann", Scope.WORK)
    revoke(administrator, ann)
    at = Token.objects.get().revoked_at
    assert "Revoked: none" in text_of(revoke(administrator, ann))
    assert Token.objects.get().revoked_at == at
    assert AuditEntry.objects.count() == 1


def test_a_token_is_changed_and_deleted_by_nobody(administrator):
    token, _ = tokens.create("ann", Scope.READ)
    assert administrator.post(f"{TOKENS}{token.pk}/change/", {"scope": "operate"}).status_code == 403
    assert administrator.post(f"{TOKENS}{token.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Token.objects.get().scope == "read"


def test_an_operator_sees_no_tokens(operator):
    token, secret = tokens.create("ann", Scope.READ)
    for url in (TOKENS, ADD, f"{TOKENS}{token.pk}/change/"):
        assert operator.get(url).status_code == 403
    assert operator.post(ADD, {"name": "olaf", "scope": "operate"}).status_code == 403
    operator.post(TOKENS, {"action": "revoke", "_selected_action": [token.pk]})
    assert tokens.valid(secret) == token
