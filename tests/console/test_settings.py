"""The settings: tokens whose secret is shown once, people and their rights, what is in force."""

import re

import pytest
from django.contrib.auth.models import User

from tasks_app.access import accounts, tokens
from tasks_app.access.people import must_choose_password, password_was_given
from tasks_app.access.policy import Action, actor_of, may
from tasks_app.models import AuditEntry, Scope, Token
from taskstore.errors import InvalidInput

from ..admin.pages import text_of
from ..people import make_user, signed_in

pytestmark = [pytest.mark.once, pytest.mark.django_db, pytest.mark.usefixtures("quick_hashes")]

TOKEN = {"name": "mailer", "scope": "work", "groups": "mail\npay/*\n", "days": "30"}


@pytest.fixture
def bob() -> User:
    return make_user("bob", "viewer")


def fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)


def trail():
    return list(AuditEntry.objects.order_by("id").values_list("actor", "action", "selection"))


def shown_once(answer) -> str:
    """The text that is to be copied."""
    [text] = re.findall(r'<pre tabindex="0"><code>(.*?)</code></pre>', answer.content.decode())
    return str(text)


def test_it_makes_a_token_and_shows_its_secret_in_this_answer_alone(admin):
    answer = admin.post("/console/settings/tokens/add", TOKEN)
    secret = shown_once(answer)
    token = tokens.valid(secret)
    assert token
    assert (token.name, token.scope, token.groups) == ("mailer", Scope.WORK, ["mail", "pay/*"])
    assert token.expires_at
    assert round((token.expires_at - token.created_at).total_seconds() / 86_400) == 30
    assert "no-store" in answer.headers["Cache-Control"]
    assert set(answer.cookies) <= {"csrftoken"}  # A message would travel in that of the session.
    assert secret not in admin.get("/console/settings").content.decode()
    assert trail() == [("ada", "create token", "token mailer")]
    assert secret not in str(AuditEntry.objects.get().__dict__)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "", "required"),
        ("name", "17", "digits only"),
        ("name", "a\x07b", "printable"),
        ("scope", "everything", "not one of"),
        ("groups", "x" * 256, "255"),
        ("clients", "ann", "client numbers"),
        ("clients", "9223372036854775808", "client numbers"),
        ("days", "0", "between 1 and"),
        ("days", "soon", "between 1 and"),
    ],
)
def test_it_says_what_is_wrong_with_a_token(admin, field, value, said):
    answer = admin.post("/console/settings/tokens/add", TOKEN | {field: value})
    assert answer.status_code == 422
    assert said in "".join(re.findall(r'class="field-error"[^>]*>(.*?)</span>', answer.content.decode()))
    assert not Token.objects.exists()
    assert not AuditEntry.objects.exists()


def test_it_names_the_token_before_it_revokes_it_and_does_so_once(admin):
    token, secret = tokens.create("mailer", Scope.READ)
    address = f"/console/settings/tokens/{token.pk}/revoke"
    assert 'Revoke the token <bdi class="group-name">mailer</bdi>?' in admin.get(address).content.decode()
    assert tokens.valid(secret)
    assert admin.post(address).headers["Location"] == "/console/settings"
    admin.post(address)
    assert tokens.valid(secret) is None
    assert trail() == [("ada", "revoke token", "token mailer")]
    assert "Revoke…" not in admin.get("/console/settings").content.decode()


def test_it_adds_a_person_with_a_one_time_password(admin):
    answer = admin.post("/console/settings/people/add", {"name": "bob", "role": "operator", "sees_payloads": "1"})
    bob = User.objects.get(username="bob")
    assert bob.check_password(shown_once(answer))
    assert "no-store" in answer.headers["Cache-Control"]
    assert must_choose_password(bob)
    assert {group.name for group in bob.groups.all()} == {"operator", "see payloads"}
    assert trail() == [("ada", "add user", "user bob")]


def test_it_changes_what_somebody_may_do(admin, bob):
    admin.post(f"/console/settings/people/{bob.pk}", {"role": "operator"})
    assert may(fresh(bob), Action.OPERATE)
    assert not may(fresh(bob), Action.SEE_PAYLOADS)
    admin.post(f"/console/settings/people/{bob.pk}", {"role": "", "sees_payloads": "1"})
    assert not may(fresh(bob), Action.SEE)
    entry = AuditEntry.objects.latest("id")
    assert entry.details["before"] == {"role": "operator", "sees_payloads": False, "commands": False}
    assert entry.details["after"] == {"role": "", "sees_payloads": True, "commands": False}


def test_of_two_who_change_the_rights_of_one_account_the_second_is_told(admin, bob):
    address = f"/console/settings/people/{bob.pk}"
    shown = {"version": admin.get(address).context["form"]["version"].value()}
    assert admin.post(address, {**shown, "role": "operator"}).status_code == 302
    answer = admin.post(address, {**shown, "role": "viewer", "commands": "1"})
    assert answer.status_code == 422
    assert "Someone has changed the rights of bob since you opened the form" in answer.content.decode()
    assert accounts.rights_of(fresh(bob)) == accounts.Rights(role="operator", sees_payloads=False)


def test_it_takes_the_rights_of_a_superuser_too(admin):
    first = User.objects.create(username="first", is_superuser=True, is_staff=True)
    admin.post(f"/console/settings/people/{first.pk}", {"role": "viewer"})
    assert not may(fresh(first), Action.OPERATE)
    assert may(fresh(first), Action.SEE)


def test_it_closes_an_account_and_opens_it_again(admin, bob):
    his = signed_in(bob)
    admin.post(f"/console/settings/people/{bob.pk}/close")
    assert his.get("/console/").status_code == 302
    admin.post(f"/console/settings/people/{bob.pk}/open")
    assert signed_in(fresh(bob)).get("/console/").status_code == 200
    assert trail() == [("ada", "close account", "user bob"), ("ada", "open account", "user bob")]


def test_it_resets_a_password_and_ends_the_sessions(admin, bob):
    his = signed_in(bob)
    password = shown_once(admin.post(f"/console/settings/people/{bob.pk}/password"))
    assert fresh(bob).check_password(password)
    assert must_choose_password(fresh(bob))
    assert his.get("/console/").status_code == 302


@pytest.mark.parametrize("verb", ["", "/close", "/password"])
def test_nobody_changes_their_own_rights(admin, verb):
    ada = User.objects.get(username="ada")
    answer = admin.post(f"/console/settings/people/{ada.pk}{verb}", {"role": "viewer"})
    assert answer.status_code == 422
    assert may(fresh(ada), Action.ADMINISTER)
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("verb", ["", "/close", "/password"])
def test_somebody_who_may_administer_is_always_left(admin, verb):
    """Ada has just lost her role by Carl's hand, and has not noticed yet."""
    ada, carl = User.objects.get(username="ada"), make_user("carl", "admin")
    password_was_given(make_user("dora", "admin"))  # Who may do nothing yet.
    ada.groups.clear()
    change = {
        "": lambda: accounts.change_rights(carl, accounts.Rights(role="viewer", sees_payloads=False), actor_of(ada)),
        "/close": lambda: accounts.close(carl, actor_of(ada)),
        "/password": lambda: accounts.reset_password(carl, actor_of(ada)),
    }[verb]
    with pytest.raises(InvalidInput, match="the last one with the role admin"):
        change()
    assert may(fresh(carl), Action.ADMINISTER)
    assert not AuditEntry.objects.exists()


def test_it_says_what_is_in_force_and_who_set_it(admin, settings, monkeypatch):
    settings.TASKSTORE_MAX_CHANGES = 4_321
    monkeypatch.setenv("TASKSTORE_MAX_CHANGES", "4321")
    page = text_of(admin.get("/console/settings/limits"))
    assert "4 321 environment TASKSTORE_MAX_CHANGES" in page
    assert "64 default TASKSTORE_MAX_LABELS" in page
    assert "12 h default TASKSTORE_SESSION_IDLE_MINUTES" in page
    assert "no limit default TASKSTORE_TOKEN_RATE" in page
