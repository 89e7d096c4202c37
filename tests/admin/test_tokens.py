"""Tokens in Django's admin: made, looked at, revoked; the secret is shown once, its hash never."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import AuditEntry, Scope, Token

from .pages import fields_of, messages_of, text_of

pytestmark = pytest.mark.once

TOKENS = "/admin/tasks_app/token/"
ADD = f"{TOKENS}add/"


def create(client, **typed):
    return client.post(ADD, fields_of(client, ADD) | {"name": "ann", "scope": "work"} | typed)


def revoke(client, *made):
    return client.post(TOKENS, {"action": "revoke", "_selected_action": [token.pk for token in made]}, follow=True)


def test_it_shows_a_new_secret_once(administrator):
    response = create(administrator, groups="pay/*\r\nmail\r\n", expires_at_0="2099-01-01", expires_at_1="00:00:00")
    found = re.search(r"<code>(ts_\S+)</code>", response.content.decode())
    assert found
    assert "no-store" in response["Cache-Control"]
    assert messages_of(response) == []  # They travel in a cookie.
    token = tokens.valid(found[1])
    assert token is not None
    assert (token.name, token.scope, token.groups) == ("ann", "work", ["pay/*", "mail"])
    assert token.expires_at is not None
    assert token.expires_at.year == 2099
    assert found[1] not in administrator.get(TOKENS).content.decode()


def test_it_binds_a_token_to_clients(administrator):
    create(administrator, clients="17 -4")
    token = Token.objects.get()
    assert token.clients == [17, -4]
    assert "17, -4" in text_of(administrator.get(f"{TOKENS}{token.pk}/change/"))


def test_it_writes_each_change_down(administrator):
    create(administrator)
    revoke(administrator, Token.objects.get())
    trail = AuditEntry.objects.order_by("id").values_list("actor", "action", "selection")
    assert list(trail) == [("ada", "create token", "token ann"), ("ada", "revoke token", "token ann")]


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


@pytest.mark.parametrize(
    ("typed", "field", "text"),
    [
        ({"name": ""}, "name", "required"),
        ({"name": "17"}, "name", "digits only"),
        ({"name": "a\x1bb"}, "name", "printable"),
        ({"name": "a" * 101}, "name", "100"),
        ({"scope": "root"}, "scope", "not one of the available choices"),
        ({"groups": "x" * 256}, "groups", "at most 255 characters"),
        ({"clients": "ann"}, "clients", "client numbers"),
        ({"clients": "9223372036854775808"}, "clients", "client numbers"),
        ({"expires_at_0": "2001-01-01", "expires_at_1": "00:00:00"}, "expires_at", "in the future"),
        ({"expires_at_0": "never", "expires_at_1": ""}, "expires_at", "valid"),
    ],
)
def test_what_makes_no_sense_is_named_beside_its_field(administrator, typed, field, text):
    response = create(administrator, **typed)
    assert text in str(response.context["adminform"].form.errors[field])
    assert not Token.objects.exists()


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
