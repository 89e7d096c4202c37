"""Search the documentation: the sections in which all words occur, best first."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from .markdown import Document, Section
from .pages import Library, url_of

LONGEST = 200  # Characters of a question.
MOST_WORDS = 10
SECTIONS_OF_A_PAGE = 3
AROUND = 90  # Characters of an excerpt before the first word found; twice as many after it.

Words = re.Pattern[str]


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

    @property
    def score(self) -> float:
        return max(section.score for section in self.sections)


def search(library: Library, question: str) -> list[FoundPage]:
    """Return the pages with all words of the question, each with its best sections.

    Words may begin in the middle of others. Where no section has all of them, a page that has them in different
    sections is found, too, below all others.
    """
    words = list(dict.fromkeys(question.lower().split()))[:MOST_WORDS]
    if not words:
        return []
    pages = [found_on(name, document, words) for name, document in library.documents()]
    # Equal pages in the order of the index.
    order = {entry.url: number for number, entry in enumerate(library.order())}
    return sorted(filter(None, pages), key=lambda page: (-page.score, order.get(page.url, len(order))))


def found_on(name: str, document: Document, words: list[str]) -> FoundPage | None:
    title = document.title.lower()
    texts = [f"{section.heading.text} {section.text}".lower() for section in document.sections]
    if not all(any(word in text for text in texts) for word in words):
        return None
    # Words in the title of a page count for each of its sections.
    whole = [
        section
        for section, text in zip(document.sections, texts, strict=True)
        if all(word in text or word in title for word in words) and any(word in text for word in words)
    ]
    some = whole or [section for section, text in zip(document.sections, texts, strict=True)
                     if any(word in text for word in words)]  # fmt: skip
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))), re.IGNORECASE)
    sections = [
        Found(
            title=marked(section.heading.text, pattern),
            url=url_of(name) if section.heading.level == 1 else f"{url_of(name)}#{section.heading.anchor}",
            excerpt=excerpt(section.text, pattern),
            score=score(section, title, words) - (0 if whole else 100),
        )
        for section in some
    ]
    best = sorted(sections, key=lambda found: -found.score)[:SECTIONS_OF_A_PAGE]
    # The best of them, in the order of the page.
    shown = [found for found in sections if found in best]
    return FoundPage(marked(document.title, pattern), url_of(name), shown)


def score(section: Section, title: str, words: list[str]) -> float:
    """Rate a section: by the page's title, then by headings and rows of tables, then by the number of occurrences."""
    heading, text, terms = section.heading.text.lower(), section.text.lower(), section.terms.lower()
    points = 0.0
    for word in words:
        points += 20 * (word in title) + 10 * (word in heading) + 8 * (word in terms) + min(text.count(word), 5)
        # Whole words count more than parts.
        points += 3 * bool(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", f"{heading} {text}"))
    if len(words) > 1 and " ".join(words) in f"{heading} {text}":
        points += 10
    # The first section of a page introduces it.
    return points + 5 * (section.heading.level == 1)


def excerpt(text: str, pattern: Words) -> SafeString:
    """Return the text around the first word found, with all of them marked."""
    first = pattern.search(text)
    place = first.start() if first else 0
    start = max(0, place - AROUND)
    end = min(len(text), place + 2 * AROUND)
    if start:
        start = text.find(" ", start, place) + 1 or start
    if end < len(text):
        cut = text.rfind(" ", place, end)
        end = cut if cut > (first.end() if first else 0) else end
    before, after = "… " if start else "", " …" if end < len(text) else ""
    return format_html("{}{}{}", before, marked(text[start:end], pattern), after)


def marked(text: str, pattern: Words) -> SafeString:
    """Return the text as HTML, with each word found in a <mark>."""
    parts, place = [], 0
    for found in pattern.finditer(text):
        parts.append(format_html("{}<mark>{}</mark>", text[place : found.start()], found[0]))
        place = found.end()
    return format_html_join("", "{}", ((part,) for part in [*parts, text[place:]]))
