"""`manage.py token`, as whoever types it notices, and as its tokens open the API."""

from datetime import timedelta
from functools import partial

import pytest
from django.core.management import call_command
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import AuditEntry, Token


@pytest.fixture
def token(db, capsys):
    """What the command writes to standard output."""

    def run(*arguments):
        call_command("token", *arguments)
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(db, refusal):
    """The line with which the command refuses."""
    return partial(refusal, "token")


def test_it_prints_a_new_token_alone_beside_a_running_server(lasting_store, lasting_server):
    made = lasting_store.manage("token", "create", "just me", "--scope", "read")
    assert (made.returncode, made.stderr) == (0, "")
    secret = made.stdout.removesuffix("\n")
    assert lasting_server.ask("GET", "/groups", secret).status_code == 200
    assert lasting_server.ask("POST", "/claim", secret, json={"clientid": 1, "group": "mail"}).status_code == 403
    assert lasting_store.manage("token", "revoke", "just me").returncode == 0


def test_it_makes_a_token_for_some_groups_and_some_time(token):
    secret = token("create", "ann", "--scope", "work", "--groups", "pay/*", "mail", "--expires", "3").strip()
    made = tokens.valid(secret)
    assert made is not None
    assert (made.name, made.scope, made.groups) == ("ann", "work", ["pay/*", "mail"])
    assert made.expires_at is not None
    assert timedelta(days=2.9) < made.expires_at - timezone.now() <= timedelta(days=3)


def test_it_makes_a_token_for_some_clients(token):
    token("create", "ann", "--scope", "work", "--clients", "17", "-4")
    assert Token.objects.get().clients == [17, -4]
    assert "17 -4" in token("list")


def test_it_lists_tokens_without_their_secrets(token):
    secret = token("create", "ann", "--scope", "work", "--groups", "pay/*", "--expires", "3").strip()
    token("create", "bob", "--scope", "read")
    token("revoke", "bob")
    [head, ann, bob] = token("list").splitlines()
    assert head.split() == ["id", "name", "scope", "groups", "clients", "created", "expires", "last", "used", "state"]
    assert ann.split()[1:4] == ["ann", "work", "pay/*"]
    assert ann.endswith("valid")
    assert bob.split()[1:4] == ["bob", "read", "all"]
    assert bob.endswith("revoked")
    assert secret not in head + ann + bob
    assert tokens.valid(secret)


def test_it_writes_each_change_down(token):
    token("create", "ann", "--scope", "work")
    token("revoke", "ann")
    trail = AuditEntry.objects.order_by("id")
    assert [(entry.action, entry.selection) for entry in trail] == [
        ("create token", "token ann"),
        ("revoke token", "token ann"),
    ]
    assert all(entry.actor.endswith(" (command line)") for entry in trail)


def test_it_asks_for_the_id_where_a_name_is_not_enough(token, refused):
    token("create", "ann", "--scope", "work")
    token("create", "ann", "--scope", "work")
    first, second = Token.objects.order_by("id")
    assert f"revoke them by id ({first.pk}, {second.pk})" in refused("revoke", "ann")
    assert "is unknown or revoked" in refused("revoke", "bob")


@pytest.mark.parametrize(
    ("name", "groups", "wrong"),
    [
        ("", ["mail"], "name: must have 1 to 100 printable characters"),
        ("   ", ["mail"], "name: "),
        ("a" * 101, ["mail"], "name: "),
        ("ann\x1b[2J", ["mail"], "name: "),
        ("17", ["mail"], "name: must not consist of digits only"),
        ("ann", [""], "groups: must be group names or prefixes followed by a star; '': "),
        ("ann", ["mail", "x" * 256], "groups: "),
        ("ann", ["ma\0il"], "groups: "),
    ],
)
def test_it_names_what_makes_no_sense(refused, name, groups, wrong):
    assert refused("create", name, "--scope", "work", "--groups", *groups).startswith(f"taskstore: {wrong}")
    assert not Token.objects.exists()
