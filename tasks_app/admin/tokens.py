"""The admin of tokens: create, view and revoke them. Secrets are shown once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminSplitDateTime, AdminTextareaWidget, AdminTextInputWidget
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from taskstore.errors import InvalidInput

from ..access import tokens
from ..access.policy import Action, actor_of, may
from ..forms import sentence
from ..models import Scope, Token
from .keyset import KeyedAdmin


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]
    """The fields of a new token."""

    name = forms.CharField(
        max_length=tokens.NAME_LENGTH, widget=AdminTextInputWidget, help_text="The program that uses the token."
    )
    scope = forms.ChoiceField(choices=Scope.choices, help_text="Each scope includes the ones before it.")
    groups = forms.CharField(
        required=False,
        strip=False,
        widget=AdminTextareaWidget,
        help_text="One per line. pay/* matches all names that start with pay/. Leave empty for all groups.",
    )
    clients = forms.CharField(
        required=False,
        widget=AdminTextInputWidget,
        help_text="Client numbers, separated by spaces. The token can act only for these. Leave empty for all clients.",
    )
    expires_at = forms.SplitDateTimeField(
        required=False, widget=AdminSplitDateTime, help_text="Leave empty for no expiry."
    )

    class Meta:
        model = Token
        fields = ()

    def clean_groups(self) -> Sequence[str]:
        return [line for line in self.cleaned_data["groups"].splitlines() if line.strip()]

    def clean_clients(self) -> Sequence[int]:
        try:
            return tokens.client_ids(self.cleaned_data["clients"].split())
        except InvalidInput as wrong:
            raise forms.ValidationError([sentence(text) for text in wrong.fields["clients"]]) from None

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                given = self.cleaned_data
                tokens.check(given["name"], given["groups"], given["expires_at"], given["clients"])
            except InvalidInput as wrong:
                for field, texts in wrong.fields.items():
                    self.add_error(field, forms.ValidationError([sentence(text) for text in texts]))
        return self.cleaned_data

    def _post_clean(self) -> None:
        """Skip Django's validation of the row, which `tokens` creates."""


@admin.register(Token)
class TokenAdmin(KeyedAdmin):
    needs = Action.ADMINISTER
    form = TokenForm
    list_display = ("id", "name", "scope", "which_groups", "created_at", "expires_at", "last_used_at", "state")
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return ("name", "scope", "groups", "clients", "expires_at")
        return (
            "name",
            "scope",
            "which_groups",
            "which_clients",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
            "state",
        )

    @admin.display(description="groups")
    def which_groups(self, token: Token) -> str:
        return ", ".join(token.groups) or "all groups"

    @admin.display(description="clients")
    def which_clients(self, token: Token) -> str:
        return ", ".join(map(str, token.clients)) or "all clients"

    @admin.display
    def state(self, token: Token) -> str:
        return tokens.state_of(token)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        given = form.cleaned_data
        token, secret = tokens.create(
            given["name"],
            Scope(given["scope"]),
            given["groups"],
            given["expires_at"],
            given["clients"],
            actor_of(request.user),
        )
        obj.id, obj.name, obj.secret = token.id, token.name, secret

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Show the secret in the answer: a message would put it into a cookie."""
        context = {**self.admin_site.each_context(request), "title": f"Token {obj.name}", "secret": obj.secret}
        return TemplateResponse(request, "admin/tasks_app/token/made.html", {**context, "opts": self.opts})

    @admin.action(description="Revoke selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        """Revoke the selected tokens."""
        with transaction.atomic():
            alive = list(queryset.filter(revoked_at=None))
            for token in alive:
                tokens.revoke(token, actor_of(request.user))
        names = ", ".join(token.name for token in alive)
        self.message_user(request, f"Revoked: {names or 'none, all were already revoked'}.", messages.SUCCESS)
