"""Settings: user accounts and their rights."""

from __future__ import annotations

from dataclasses import asdict

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url

from ..access import accounts as verbs
from ..access.accounts import Rights, rights_of
from ..access.audit import version_of
from ..access.people import Person, must_choose_password, must_choose_passwords, person_of
from ..access.policy import Action
from ..core.actors import Actor
from . import words
from .fields import TellingForm
from .pages import ask_first, asks, done, fill_in, posted, reads, sign_in_page, user_of

SHOWN = 500
ROLES = {
    "viewer": "sees groups, tasks and workers",
    "operator": "also requeues, moves, edits and purges tasks, and pauses groups",
    "admin": "also manages people and tokens, and sees task data",
    "": "can sign in but has no access",
}
RESET = "reset"
# What is done to an account after a question, and what is said then. A reset shows a password instead.
CHANGES = {
    "close": (verbs.close, "Closed the account of {}."),
    "open": (verbs.open_again, "Reopened the account of {}."),
    "sign out": (verbs.sign_out_everywhere, "Signed out {} everywhere."),
}


class RightsForm(TellingForm):
    """A role and the additional rights."""

    role = forms.ChoiceField(choices=[(role, role) for role in ROLES], required=False)
    sees_payloads = forms.BooleanField(required=False)
    commands = forms.BooleanField(required=False)
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    def rights(self) -> Rights:
        """Return the rights that a valid form asks for."""
        return Rights(**{name: self.cleaned_data[name] for name in ("role", "sees_payloads", "commands")})


class PersonForm(RightsForm):
    """A new account."""

    name = forms.CharField(max_length=254, widget=forms.TextInput({"autocapitalize": "off", "spellcheck": "false"}))


@reads(Action.ADMINISTER)
def people(request: HttpRequest) -> HttpResponse:
    """List the accounts, the open ones first."""
    found = Person._default_manager.prefetch_related("groups__permissions", "user_permissions")
    shown = found.order_by("-is_active", Person.USERNAME_FIELD)[:SHOWN]
    must_choose = set(must_choose_passwords())
    rows = [(user, rights_of(user), user.pk in must_choose) for user in shown]
    context = {"people": rows, "is_cut_short": found.count() > SHOWN, "now_ms": words.now_ms()}
    return render(request, "tasks_app/people.html", context)


@asks(Action.ADMINISTER)
def add(request: HttpRequest) -> HttpResponse:
    """Show the form; create the account and show its one-time password, which is never shown again."""
    form = PersonForm(posted(request), initial={"role": "viewer"})

    def do(actor: Actor) -> HttpResponse:
        return _show_password(request, *verbs.add(form.cleaned_data["name"], form.rights(), actor))

    return fill_in(request, form, "add_person", {"roles": ROLES.items()}, do)


@asks(Action.ADMINISTER)
def person(request: HttpRequest, user_id: str) -> HttpResponse:
    """Show an account with its rights; change the rights."""
    user = person_of(user_id)
    rights = rights_of(user)
    form = RightsForm(posted(request), initial=asdict(rights) | {"version": version_of(rights)})

    def do(actor: Actor) -> HttpResponse:
        verbs.change_rights(user, form.rights(), actor, version=form.cleaned_data["version"])
        return done(request, f"Changed the rights of {user.get_username()}.", resolve_url("tasks_app:people"))

    context = {
        "person": user,
        "roles": ROLES.items(),
        "is_oneself": user == user_of(request),
        "must_choose": must_choose_password(user),
    }
    return fill_in(request, form, "person", context, do)


@asks(Action.ADMINISTER)
def change(request: HttpRequest, user_id: str, verb: str) -> HttpResponse:
    """Ask for confirmation, then do it. A reset shows the one-time password, which is never shown again."""
    user = person_of(user_id)

    def do(actor: Actor) -> HttpResponse:
        if verb == RESET:
            return _show_password(request, user, verbs.reset_password(user, actor))
        change_it, said = CHANGES[verb]
        change_it(user, actor)
        return done(request, said.format(user.get_username()), resolve_url("tasks_app:people"))

    context = {"person": user, "verb": verb, "answer_is_page": True}
    return ask_first(request, "account_question", user.get_username(), context, do)


def _show_password(request: HttpRequest, user: Person, password: str) -> HttpResponse:
    sign_in = request.build_absolute_uri(sign_in_page())
    context = {"person": user, "password": password, "sign_in": sign_in}
    return render(request, "tasks_app/password_made.html", context)
