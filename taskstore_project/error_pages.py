"""Answers to errors outside of views: JSON, or a page when a browser asks for one."""

from __future__ import annotations

import logging
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import Any

from asgiref.sync import iscoroutinefunction
from csp.middleware import CSPMiddleware
from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.cookie import parse_cookie
from django.http.multipartparser import MultiPartParserError
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware
from django.template.loader import get_template
from django.utils.decorators import sync_and_async_middleware

from tasks_app.database.outage import RETRY_AFTER_S, translated
from tasks_app.rest_api.authentication import FOREIGN_HOST
from taskstore.errors import StoreBusy, StoreUnavailable

# More digits than any id or name has. Python itself refuses to parse a few thousand digits.
LONG_NUMBER = re.compile(r"(?:^|/)[0-9]{256,}(?:/|$)")

# Of the one page that shows them all: a 404.html or the like would replace that of every project with tasks_app.
TITLES = {
    400: "Invalid request",
    403: "Permission denied",
    404: "Page not found",
    413: "The form is too large",
    500: "Server error",
}

log = logging.getLogger(__name__)


@sync_and_async_middleware
def refuse_long_numbers(get_response: Any) -> Callable[[HttpRequest], Any]:
    """Return a middleware that answers 400 to a path with a number that is too long for any id."""
    refusal = "The path contains a number with too many digits: an id has at most 19."

    def refused(request: HttpRequest) -> HttpResponse | None:
        if not LONG_NUMBER.search(request.path_info):
            return None
        # In the form of the API's answers to invalid requests.
        return answer(request, 400, refusal, errors={"path": [refusal]})

    def respond(request: HttpRequest) -> Any:
        return refused(request) or get_response(request)

    async def respond_on_the_loop(request: HttpRequest) -> Any:
        return refused(request) or await get_response(request)

    return respond_on_the_loop if iscoroutinefunction(get_response) else respond


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400, or 413 to a request that is too large. As in the API, `errors` names the field and the right form."""
    status, field, detail = 400, "body", ""
    match exception:
        case DisallowedHost() if settings.TASKSTORE_NO_AUTH:
            field, right, detail = "Host", FOREIGN_HOST, f"Host: {FOREIGN_HOST}"
        case DisallowedHost():
            field, right = "Host", "must be a name of this server: set TASKSTORE_PUBLIC_URL to its address"
            detail = "This is not a host name of this server. Set TASKSTORE_PUBLIC_URL to its address."
        case TooManyFieldsSent():
            most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
            field = "query" if request.META.get("QUERY_STRING", "").count("&") >= most else "body"
            right = f"must have at most {most} fields"
        case TooManyFilesSent():
            right = f"must have at most {settings.DATA_UPLOAD_MAX_NUMBER_FILES} files"
        case RequestDataTooBig():
            status, most = 413, settings.DATA_UPLOAD_MAX_MEMORY_SIZE
            right, detail = f"must be at most {most} bytes", f"The request must be at most {size_in_words(most)}."
        case MultiPartParserError():
            right = "must be a valid multipart form"
        case _:
            field, right = "request", "must have valid headers, and a body as long as Content-Length says"
    return answer(request, status, detail or f"The {field} {right}.", errors={field: [right]})


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, 403, str(exception) or "Permission denied.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    detail = "Nothing was changed. Go back, reload the page and try again."
    return page(request, 403, "Your session changed", detail=detail)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, 404, "Not found. The API is described at /schema.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 500 with the number under which the log has the details, or 503 in an outage of the database.

    An outage is handled here because middleware and Django's own views use the database, too.
    """
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and (away := translated(error)):
        response = unavailable(request, error, away)
        response._has_been_logged = True  # type: ignore[attr-defined]  # outage.py logs outages.
        return response
    number = secrets.token_hex(8)
    log.exception("request %s failed: %s %s", number, request.method, request.path)
    response = answer(request, 500, "Internal server error.", request_id=number)
    # Otherwise Django logs the same again, without the number.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def unavailable(request: HttpRequest, error: Exception, outage: StoreUnavailable | StoreBusy) -> HttpResponse:
    # Imported late: the console needs models, which are loaded after this module.
    from tasks_app.console.pages import is_partial, problem

    if is_partial(request) or wants_html(request):
        return problem(request, error)
    response = JsonResponse({"detail": str(outage), "code": outage.code}, status=503)
    response["Retry-After"] = RETRY_AFTER_S
    response["Cache-Control"] = "no-store"
    return response


def too_large(path: str, headers: Mapping[str, str], most: int) -> HttpResponse:
    """Answer a request whose body has more than `most` bytes, which the server refuses before Django gets it.

    `headers` are those of the request, with lower-case names.
    """
    from tasks_app.console.pages import is_partial

    request = HttpRequest()
    request.method, request.path, request.path_info = "POST", path, path
    request.META = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    request.COOKIES = parse_cookie(headers.get("cookie", ""))
    detail = f"The request must be at most {size_in_words(most)}."
    if is_partial(request):
        context = {"title": "The form is too large", "text": f"{detail} Nothing was changed."}
        response = HttpResponse(get_template("tasks_app/_problem.html").render(context, request), status=413)
    else:
        response = answer(request, 413, detail, errors={"body": [f"must be at most {most} bytes"]})
    response["Cache-Control"] = "no-store"

    def respond(_: HttpRequest) -> HttpResponse:
        return response

    SecurityMiddleware(CSPMiddleware(XFrameOptionsMiddleware(respond)))(request)  # Adds the security headers.
    return response


def size_in_words(size: int) -> str:
    """Return the number of bytes as people read it: "64 MiB", or "2500 bytes" where no larger unit fits exactly."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


def answer(request: HttpRequest, status: int, detail: str, **more: Any) -> HttpResponse:
    content = {"detail": detail, **more}
    if not wants_html(request):
        return JsonResponse(content, status=status)
    return page(request, status, TITLES[status], **content)


def page(request: HttpRequest, status: int, title: str, **more: Any) -> HttpResponse:
    context = {"status": status, "title": title, **more}
    return HttpResponse(get_template("tasks_app/error.html").render(context, request), status=status)


def wants_html(request: HttpRequest) -> bool:
    return request.get_preferred_type(["application/json", "text/html"]) == "text/html"
