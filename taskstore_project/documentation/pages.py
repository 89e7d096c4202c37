"""Find the pages of the documentation, their groups, the targets of their links, and the search in them."""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from .markdown import Document

HERE = Path(__file__).parent
INDEX = "docs/README.md"  # Code hosts show it for the directory.
# Pages beside docs/, and their names under /docs/.
FRONT = {"README.md": "readme", "CHANGELOG.md": "changelog"}
# Directories of code that pages link to. Only these and docs/ are shown.
CODE = ("taskstore/", "tasks_app/", "taskstore_project/")
# Files that are sent as images; all others are sent as plain text.
IMAGES = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}

GROUP = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
ENTRY = re.compile(r"^\* \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+\.md)\)", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
PNG_SIZE = struct.Struct(">16x2I")

LONGEST = 200  # Characters of a question.
MOST_WORDS = 10
SECTIONS_OF_A_PAGE = 3
WORDS_BEFORE, WORDS_AFTER = 12, 25  # Of an excerpt, around the first word found.


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the index."""

    name: str
    title: str

    @property
    def url(self) -> str:
        return url_of(self.name)


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    entries: list[Entry]


class Library:
    """The pages in `root`, which is a checkout or the directory of an installed wheel.

    `code` is the directory of the packages that pages refer to.
    """

    def __init__(self, root: Path, code: Path) -> None:
        self.root, self.code = root, code

    def names(self) -> list[str]:
        """Return the names of all pages; the name of the index is empty."""
        paths = [f"docs/{page.name}" for page in sorted((self.root / "docs").glob("*.md"))]
        return [name_of(path) for path in [*paths, *FRONT] if (self.root / path).is_file()]

    def document(self, name: str) -> Document | None:
        """Return the page of this name, read again when its file has changed."""
        path = path_of(name)
        if not re.fullmatch(r"[\w-]*", name) or name_of(path) != name:
            return None
        try:
            state = (self.root / path).stat()
        except FileNotFoundError:
            return None
        return read(self, path, state.st_mtime_ns, state.st_size)

    def state(self, name: str) -> str:
        """Return a text that changes with the page and the index."""
        files = (self.root / INDEX, self.root / path_of(name))
        return "-".join(f"{file.stat().st_mtime_ns:x}" for file in files if file.is_file())

    def groups(self) -> list[Group]:
        """Return the chapters of the index with their pages, in order."""
        _, *parts = GROUP.split((self.root / INDEX).read_text())
        groups = []
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            found = ENTRY.finditer(body)
            groups.append(Group(title, [Entry(name_of(joined(INDEX, each["path"])), each["title"]) for each in found]))
        return groups

    def order(self) -> list[Entry]:
        """Return all pages in the order of the index."""
        return [Entry("", "Documentation"), *(entry for group in self.groups() for entry in group.entries)]

    def neighbours(self, name: str) -> tuple[Entry | None, Entry | None]:
        """Return the pages before and after this one, in the order of the index."""
        order = self.order()
        place = next((number for number, entry in enumerate(order) if entry.name == name), None)
        if place is None:
            return None, None
        return (order[place - 1] if place else None), (order[place + 1] if place + 1 < len(order) else None)

    def target(self, page: str, link: str) -> str:
        """Return the address of a link on the page with this path."""
        if ELSEWHERE.match(link) or link.startswith("#"):
            return link
        written, mark, anchor = link.partition("#")
        path = joined(page, written)
        name = name_of(path)
        if path_of(name) == path and (self.root / path).is_file():
            return f"{url_of(name)}{mark}{anchor}"
        return reverse("documentation:file", args=[path])

    def place(self, path: str) -> Path | None:
        """Return the file or directory of this path if it may be shown: all of docs/, and code that a page links to."""
        parts = path.split("/")
        if not all(parts) or any(part.startswith(".") for part in parts) or "\0" in path:
            return None
        if path.startswith("docs/"):
            place = self.root / path
            inside = place.resolve().is_relative_to((self.root / "docs").resolve())
            return place if inside and place.exists() else None
        if not path.startswith(CODE) or path not in self.referred():
            return None
        place = self.code / path
        return place if place.is_file() else None

    def referred(self) -> set[str]:
        """Return the paths of everything that pages link to."""
        return {
            joined(path_of(name), link.partition("#")[0])
            for name, document in self.documents()
            for link in document.links
            if not ELSEWHERE.match(link) and not link.startswith("#")
        }

    def documents(self) -> Iterator[tuple[str, Document]]:
        for name in self.names():
            if document := self.document(name):
                yield name, document

    def size_of_image(self, page: str, link: str) -> tuple[int, int] | None:
        """Return the width and height of a PNG, so that the layout does not shift while it loads."""
        try:
            with (self.root / joined(page, link)).open("rb") as file:
                head = file.read(PNG_SIZE.size)
        except OSError:
            return None
        if len(head) < PNG_SIZE.size or not head.startswith(b"\x89PNG"):
            return None
        width, height = PNG_SIZE.unpack(head)
        return width, height


@lru_cache(maxsize=128)
def read(library: Library, path: str, _changed_ns: int, _size: int) -> Document:
    return Document(
        (library.root / path).read_text(),
        resolve=lambda link: library.target(path, link),
        measure=lambda link: library.size_of_image(path, link),
    )


def joined(page: str, link: str) -> str:
    """Return the path of a link, which is relative to the page."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def name_of(path: str) -> str:
    """Return the name under /docs/ of the page with this path."""
    if path == INDEX:
        return ""
    return FRONT.get(path) or path.removeprefix("docs/").removesuffix(".md")


def path_of(name: str) -> str:
    """Return the path of the page with this name, whether or not it exists."""
    if not name:
        return INDEX
    return next((path for path, front in FRONT.items() if front == name), f"docs/{name}.md")


def url_of(name: str) -> str:
    return reverse("documentation:page", args=[name]) if name else reverse("documentation:index")


# A wheel has the pages beside this file.
LIBRARY = Library(settings.BASE_DIR if settings.IS_CHECKOUT else HERE / "pages", settings.BASE_DIR)


@dataclass(frozen=True, slots=True)
class Found:
    """A section that a search found."""

    title: SafeString
    url: str
    excerpt: SafeString
    score: float


@dataclass(frozen=True, slots=True)
class FoundPage:
    title: SafeString
    url: str
    sections: list[Found]


def search(library: Library, question: str) -> list[FoundPage]:
    """Return the pages with all words of the question, each with its best sections, the best page first.

    Words may begin in the middle of others, and may be in different sections of the page.
    """
    words = list(dict.fromkeys(question.lower().split()))[:MOST_WORDS]
    pages = [found_on(name, document, words) for name, document in library.documents()] if words else []
    return sorted(filter(None, pages), key=lambda page: -max(section.score for section in page.sections))


def found_on(name: str, document: Document, words: list[str]) -> FoundPage | None:
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))), re.IGNORECASE)
    found, title, seen = [], document.title.lower(), set()
    for section in document.sections:
        text, heading = f"{section.heading.text} {section.text}".lower(), section.heading.text.lower()
        here = [word for word in words if word in text]
        seen.update(here)
        # A section with all words comes first, then titles, headings and the number of occurrences count.
        score = 100 * len(here) + sum(
            20 * (word in title) + 10 * (word in heading) + min(text.count(word), 5) for word in here
        )
        # The first section of a page introduces it.
        is_first = section.heading.level == 1
        url = url_of(name) if is_first else f"{url_of(name)}#{section.heading.anchor}"
        if here:
            name_of_it = marked(section.heading.text, pattern)
            found.append(Found(name_of_it, url, excerpt(section.text, pattern), score + 5 * is_first))
    if len(seen) < len(words):
        return None
    best = sorted(found, key=lambda each: -each.score)[:SECTIONS_OF_A_PAGE]
    # The best of them, in the order of the page.
    return FoundPage(marked(document.title, pattern), url_of(name), [each for each in found if each in best])


def excerpt(text: str, pattern: re.Pattern[str]) -> SafeString:
    """Return the text around the first word found, with all of them marked."""
    words = text.split()
    place = next((number for number, word in enumerate(words) if pattern.search(word)), 0)
    start, end = max(0, place - WORDS_BEFORE), place + WORDS_AFTER
    shown = marked(" ".join(words[start:end]), pattern)
    return format_html("{}{}{}", "… " if start else "", shown, " …" if end < len(words) else "")


def marked(text: str, pattern: re.Pattern[str]) -> SafeString:
    """Return the text as HTML, with each word found in a <mark>."""
    parts, place = [], 0
    for found in pattern.finditer(text):
        parts.append(format_html("{}<mark>{}</mark>", text[place : found.start()], found[0]))
        place = found.end()
    return format_html_join("", "{}", ((part,) for part in [*parts, text[place:]]))
