"""Settings: the access tokens of programs. A secret is shown once, on the page that creates it."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render, resolve_url
from django.utils import timezone

from ..access import tokens as verbs
from ..access.policy import Action
from ..core.actors import Actor
from ..models import Scope, Token
from . import words
from .fields import TellingForm, WholeNumber
from .pages import ask_first, asks, done, fill_in, posted, reads

SHOWN = 500
MOST_DAYS = 36_500
SCOPES = {
    Scope.READ: "sees groups, tasks and their data",
    Scope.WORK: "also adds, claims and commits tasks, as workers do",
    Scope.OPERATE: "also overrides owners, changes many tasks at once, pauses groups and sees the audit log",
    Scope.COMMANDS: "like work, and also submits shell commands that workers run on their machines",
}


class TokenForm(TellingForm):
    """The fields of a new token."""

    name = forms.CharField(max_length=verbs.NAME_LENGTH)
    scope = forms.ChoiceField(choices=[(scope, scope) for scope in SCOPES], initial=Scope.WORK)
    groups = forms.CharField(required=False, strip=False, widget=forms.Textarea({"rows": 3}))
    clients = forms.CharField(required=False)
    days = WholeNumber(required=False, initial="365", least=1, most=MOST_DAYS)


@reads(Action.ADMINISTER)
def tokens(request: HttpRequest) -> HttpResponse:
    """List the tokens, valid ones first, newest first."""
    found = Token.objects.order_by(F("revoked_at").desc(nulls_first=True), "-id")
    return render(
        request,
        "tasks_app/tokens.html",
        {
            "tokens": [(token, verbs.state_of(token)) for token in found[:SHOWN]],
            "is_cut_short": found.count() > SHOWN,
            "now_ms": words.now_ms(),
        },
    )


@asks(Action.ADMINISTER)
def add(request: HttpRequest) -> HttpResponse:
    """Show the form; create the token and show its secret, which is never shown again."""
    form = TokenForm(posted(request))

    def do(actor: Actor) -> HttpResponse:
        given = form.cleaned_data
        expires_at = timezone.now() + timedelta(days=given["days"]) if given["days"] else None
        groups = [line for line in given["groups"].splitlines() if line.strip()]
        clients = verbs.client_ids(given["clients"].split())
        token, secret = verbs.create(given["name"], Scope(given["scope"]), groups, expires_at, clients, actor)
        return render(request, "tasks_app/token_made.html", {"token": token, "secret": secret})

    return fill_in(request, form, "add_token", {"scopes": SCOPES.items()}, do)


@asks(Action.ADMINISTER)
def revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    """Ask for confirmation; revoke the token."""
    token = get_object_or_404(Token, pk=token_id)

    def do(actor: Actor) -> HttpResponse:
        verbs.revoke(token, actor)
        said = f"Revoked {token.name}. Clients using it lose access within five seconds."
        return done(request, said, resolve_url("tasks_app:settings"))

    context = {"token": token, "nothing": verbs.state_of(token) == "revoked"}
    return ask_first(request, "revoke_token", "Revoke a token", context, do)
