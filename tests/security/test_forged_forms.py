"""A page of another site that sends a form with somebody's cookie changes nothing, whatever address it sends it to."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tasks_app.models import AuditEntry, Task, Token

from ..admin import test_rights as admin
from ..admin.test_rights import ids  # noqa: F401 - a fixture.
from ..people import signed_in

pytestmark = [pytest.mark.once, pytest.mark.django_db]

MODELS = (Task, Token, AuditEntry, User, Group)


@pytest.fixture
def victim(people) -> Client:
    client = signed_in(people["superuser"])
    client.handler.enforce_csrf_checks = True
    return client


def everything():
    return [list(model._base_manager.order_by("pk").values()) for model in MODELS]


@pytest.mark.parametrize("page", [page for page in admin.PAGES if page != "(?P<url>.*)$"] + ["logout/"])
@pytest.mark.parametrize("headers", [{}, {"origin": "https://elsewhere.example"}])
def test_no_form_of_the_admin_works_without_its_token(victim, ids, page, headers):  # noqa: F811
    before = everything()
    typed = {"post": "yes", "group": "mail", "name": "lou", "username": "lou", "scope": "read", "action": "revoke"}
    answer = victim.post(admin.path_of(page, ids), typed, headers=headers)
    assert answer.status_code == 403
    assert everything() == before
    assert victim.get("/console/").status_code == 200


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://testserver.elsewhere.example", "null"])
def test_a_form_with_its_token_works_from_our_own_pages_alone(victim, origin):
    form = victim.get("/console/login")
    assert form.status_code in (200, 302)
    token = victim.get("/console/pause?name=mail").context["csrf_token"]
    fields = {"name": "mail", "csrfmiddlewaretoken": str(token)}
    assert victim.post("/console/pause", fields, headers={"origin": origin}).status_code == 403
    assert not AuditEntry.objects.exists()
    assert victim.post("/console/pause", fields, headers={"origin": "http://testserver"}).status_code != 403
    assert AuditEntry.objects.count() == 1
