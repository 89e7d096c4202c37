"""The documentation, for everybody: what it says is no secret."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe
from django.views.static import serve

from ..error_pages import answer
from .site import SITE, CannotShow

AGAIN_AFTER_S = "2"


@require_safe
def page(request: HttpRequest, path: str = "index.html") -> HttpResponseBase:
    """A file of the site. While there is none yet, 503 and a page that asks again by itself."""
    try:
        folder = SITE.folder()
    except CannotShow as reason:
        response = answer(request, 503, str(reason))
        response["Retry-After"] = response["Refresh"] = AGAIN_AFTER_S
        response._has_been_logged = True  # type: ignore[attr-defined]  # Nothing is wrong, or the log says what.
        return response
    found = serve(request, path, document_root=str(folder))
    # To be asked for anew, and answered with 304: an upgrade changes pages under the same names.
    found["Cache-Control"] = "no-cache"
    return found
