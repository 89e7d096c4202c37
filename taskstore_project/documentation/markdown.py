"""Convert a Markdown page to HTML, headings, and text for the search."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
ALIGNMENT = re.compile(r"text-align:(\w+)")
# Languages of blocks with a copy button. Terminal sessions have none, as they contain prompts and output.
COPIED = {"sh", "bash", "python", "yaml", "toml", "json"}
CLASSES = HtmlFormatter(nowrap=True)

Resolve = Callable[[str], str]
"""Returns the address of a link or an image of the page."""
Measure = Callable[[str], tuple[int, int] | None]
"""Returns the width and height of an image of the page, or None."""


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, up to the next heading."""

    heading: Heading
    text: str


class Document:
    """A parsed page. It is rendered on demand, as the search needs only its text."""

    def __init__(self, text: str, resolve: Resolve, measure: Measure) -> None:
        self.tokens: list[Token] = PARSER.parse(text)
        self._resolve, self._measure = resolve, measure
        self.headings: list[Heading] = []
        self.sections: list[Section] = []
        self.links: list[str] = []  # As written on the page.
        self._read()

    @property
    def title(self) -> str:
        return next((each.text for each in self.headings if each.level == 1), "")

    @property
    def contents(self) -> list[Heading]:
        """Return the headings for the table of contents."""
        return [each for each in self.headings if each.level in (2, 3)]

    @cached_property
    def html(self) -> SafeString:
        """Return the page without its title."""
        # Safe: the renderer escapes raw HTML of the page, and makes everything else.
        body = self.tokens[3:] if self.tokens and self.tokens[0].tag == "h1" else self.tokens
        return SafeString(PARSER.renderer.render(body, PARSER.options, {}))

    def _read(self) -> None:
        """Give headings their anchors and links their addresses, and collect the text of each section."""
        taken: dict[str, int] = {}
        texts: list[str] = []
        for place, token in enumerate(self.tokens):
            if token.type == "heading_open":
                self._end_section(texts)
                text = plain(self.tokens[place + 1].children or ())
                if token.tag == "h1" and self.headings:
                    # A page has one title.
                    token.tag = self.tokens[place + 2].tag = "h2"
                heading = Heading(int(token.tag[1]), anchor_of(text, taken), text)
                self.headings.append(heading)
                token.attrSet("id", heading.anchor)
                # The next two tokens are its text and its end.
                self.tokens[place + 2].meta["heading"] = heading
            elif token.type == "inline":
                children = token.children or []
                self._lead(children)
                if self.tokens[place - 1].type != "heading_open":
                    texts.append(plain(children))
            elif token.type in ("fence", "code_block"):
                texts.append(token.content)
            elif token.type == "th_open" and not self.tokens[place + 1].content:
                # An empty corner of a table is not a header.
                token.tag = self.tokens[place + 2].tag = "td"
                token.attrs = {}
            elif token.type in ("th_open", "td_open") and (found := ALIGNMENT.search(str(token.attrGet("style")))):
                # The content security policy forbids inline styles.
                token.attrs = {"class": f"align-{found[1]}"}
        self._end_section(texts)

    def _end_section(self, texts: list[str]) -> None:
        if self.headings:
            self.sections.append(Section(self.headings[-1], " ".join(" ".join(texts).split())))
        texts.clear()

    def _lead(self, children: Sequence[Token]) -> None:
        for token in children:
            if token.type == "link_open":
                self.links.append(str(token.attrGet("href")))
                token.attrSet("href", self._resolve(self.links[-1]))
            elif token.type == "image":
                source = str(token.attrGet("src"))
                self.links.append(source)
                token.attrSet("src", self._resolve(source))
                if size := self._measure(source):
                    token.attrSet("width", str(size[0]))
                    token.attrSet("height", str(size[1]))
                token.attrSet("loading", "lazy")


def anchor_of(text: str, taken: dict[str, int]) -> str:
    """Return the anchor of a heading, by the rule that GitHub uses; a repeated heading gets a number."""
    kept = "".join(letter for letter in text.lower() if letter in " -_" or unicodedata.category(letter)[0] in "LNM")
    base = kept.strip().replace(" ", "-") or "section"
    number = taken.get(base, 0)
    taken[base] = number + 1
    return f"{base}-{number}" if number else base


def plain(tokens: Sequence[Token]) -> str:
    """Return the text of inline tokens without markup."""
    parts = []
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special"):
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(plain(token.children or ()))
    return "".join(parts)


def code_html(text: str, language: str) -> SafeString:
    """Return code with a class for each kind of word."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return escape(text)
    # Safe: the formatter escapes the code.
    return SafeString(highlight(text, lexer, CLASSES))


class Renderer(RendererHTML):
    """Renders HTML for the console's style sheets, without inline styles and without the page's own HTML."""

    def html_block(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        """Leave out comments, which are for writers and tests; show any other HTML as text."""
        rest = COMMENT.sub("", tokens[idx].content)
        return format_html("<p>{}</p>\n", rest) if rest.strip() else ""

    def html_inline(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        return escape(COMMENT.sub("", tokens[idx].content))

    def heading_open(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        return f'<div class="heading"><{tokens[idx].tag} id="{escape(tokens[idx].attrGet("id"))}">'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        heading: Heading = tokens[idx].meta["heading"]
        end = f"</{tokens[idx].tag}>"
        if heading.level == 1:
            return f"{end}</div>\n"
        return end + format_html(
            '<a class="permalink" href="#{}" aria-label="Link to “{}”">#</a></div>\n', heading.anchor, heading.text
        )

    def fence(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        words = tokens[idx].info.split()
        language = words[0] if words else ""
        body = format_html("<pre><code>{}</code></pre>", code_html(tokens[idx].content, language))
        if language not in COPIED:
            return f'<div class="code">{body}</div>\n'
        button = '<button type="button" class="button" data-copy data-needs-script><span>Copy</span></button>'
        return f'<div class="code">{body}{button}</div>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        return format_html('<div class="code"><pre><code>{}</code></pre></div>\n', tokens[idx].content)

    def table_open(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        return '<div class="scrolled"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: object, env: object) -> str:
        return "</table></div>\n"


# `html` only serves to recognize comments: the renderer shows no HTML of a page.
PARSER = MarkdownIt("commonmark", {"html": True}, renderer_cls=Renderer).enable(["table", "strikethrough"])
