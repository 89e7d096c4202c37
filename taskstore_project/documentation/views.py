"""The pages of the documentation, which need no sign-in."""

from __future__ import annotations

import time

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, re_path
from django.views.decorators.cache import cache_control
from django.views.decorators.http import etag, require_safe

from . import views
from .pages import IMAGES, LIBRARY, LONGEST, search, url_of

TEXT = "text/plain; charset=utf-8"
# Names of the index in files and older releases.
INDEXES = ("index", "README")

STARTED = f"{time.time_ns():x}"  # Changes with each start, and so with each release.

# Browsers must revalidate pages, as an upgrade changes them under the same names.
fresh = cache_control(no_cache=True)


def version(request: HttpRequest, name: str = "") -> str:
    """Return the ETag of a page, from everything that it depends on."""
    theme = request.COOKIES.get("theme")
    return f'"{STARTED}-{LIBRARY.state(name)}-{theme if theme in ("light", "dark") else ""}"'


@require_safe
@fresh
@etag(version)
def index(request: HttpRequest) -> HttpResponse:
    return show(request, "")


@require_safe
@fresh
@etag(version)
def page(request: HttpRequest, name: str) -> HttpResponse:
    if name in INDEXES:
        return redirect(url_of(""), permanent=True)
    return show(request, name)


@require_safe
def moved(request: HttpRequest, name: str) -> HttpResponse:
    """Redirect the name of a file, or a name without a slash, to the page."""
    if name in INDEXES:
        name = ""
    if LIBRARY.document(name) is None:
        raise Http404
    return redirect(url_of(name), permanent=True)


def show(request: HttpRequest, name: str) -> HttpResponse:
    document = LIBRARY.document(name)
    if document is None:
        raise Http404
    before, after = LIBRARY.neighbours(name)
    more = {"document": document, "name": name, "before": before, "after": after}
    return render(request, "taskstore_project/documentation/page.html", {"groups": LIBRARY.groups(), **more})


@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """Show the sections with the words of `q`."""
    question = request.GET.get("q", "").strip()
    problem = f"q: must be at most {LONGEST} characters" if len(question) > LONGEST else ""
    found = [] if problem else search(LIBRARY, question)
    more = {"question": question[:LONGEST], "problem": problem, "found": found}
    content = {"groups": LIBRARY.groups(), **more}
    return render(request, "taskstore_project/documentation/find.html", content, status=400 if problem else 200)


@require_safe
@fresh
def file(request: HttpRequest, path: str) -> HttpResponseBase:
    """Send an image, an example or a file of code that a page links to, or list the files of a directory."""
    place = LIBRARY.place(path.removesuffix("/"))
    if place is None:
        raise Http404
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if each.is_file() and not each.name.startswith("."))
        entries = [(name, f"{path.removesuffix('/')}/{name}") for name in names]
        content = {"groups": LIBRARY.groups(), "folder": path.removesuffix("/"), "entries": entries}
        return render(request, "taskstore_project/documentation/folder.html", content)
    return FileResponse(place.open("rb"), content_type=IMAGES.get(place.suffix, TEXT))


# ----


app_name = "documentation"

urlpatterns = [
    path("", views.index, name="index"),
    path("find/", views.find, name="find"),
    path("files/<path:path>", views.file, name="file"),
    path("<slug:name>/", views.page, name="page"),
    # Links to the file of a page, or to a page of an older release.
    re_path(r"^(?P<name>[\w-]+)(\.html|\.md)?$", views.moved, name="moved"),
]
