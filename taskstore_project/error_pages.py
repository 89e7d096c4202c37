"""What is answered where no view answers: JSON, or a page when a browser asks for one."""

from __future__ import annotations

import logging
import secrets

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import get_template

log = logging.getLogger(__name__)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, DisallowedHost):
        return answer(request, 400, "This server does not go by that host name. TASKSTORE_PUBLIC_URL gives it one.")
    return answer(request, 400, "The request makes no sense: look at its headers and its length.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, 403, str(exception) or "You may not do that.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, 404, "There is no such path. What the API has stands in /schema.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Says nothing of what went wrong, but under which number the log tells it."""
    number = secrets.token_hex(8)
    log.exception("request %s failed: %s %s", number, request.method, request.path)
    response = answer(request, 500, "Something went wrong in the server.", request_id=number)
    # Or Django writes the same again, without the number.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def answer(request: HttpRequest, status: int, detail: str, **more: str) -> HttpResponse:
    content = {"detail": detail, **more}
    if request.get_preferred_type(["application/json", "text/html"]) == "text/html":
        try:
            return HttpResponse(get_template(f"{status}.html").render(content, request), status=status)
        except TemplateDoesNotExist:
            pass
    return JsonResponse(content, status=status)
