"""Tokens in Django's admin: looked at and revoked; their hash is never shown."""

import pytest

from tasks_app.access import tokens
from tasks_app.models import AuditEntry, Scope

from .pages import text_of

pytestmark = pytest.mark.once

TOKENS = "/admin/tasks_app/token/"
ADD = f"{TOKENS}add/"


def revoke(client, *made):
    return client.post(TOKENS, {"action": "revoke", "_selected_action": [token.pk for token in made]}, follow=True)


def test_it_writes_a_revocation_down(administrator):
    revoke(administrator, tokens.create("ann", Scope.WORK)[0])
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.selection) == ("ada", "revoke token", "token ann")


def test_it_revokes_tokens(administrator):
    (ann, secret), (bob, other) = tokens.create("ann", Scope.WORK), tokens.create("bob", Scope.WORK)
    response = revoke(administrator, ann)
    assert "Revoked: ann." in text_of(response)
    assert "revoked" in text_of(administrator.get(f"{TOKENS}{ann.pk}/change/"))
    assert tokens.valid(secret) is None
    assert tokens.valid(other) == bob
