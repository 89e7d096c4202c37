"""What Sphinx reads: the pages as people write them, in one folder, with links that hold there.

Standard library only: it also runs where a wheel is built.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Pages beside docs/, and what they are called on the site.
FRONT = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
INDEX = "docs/README.md"  # What a forge shows of the folder.
# Of the console, so that both look alike.
LOOKS = ("css/console.css", "js/theme.js", "vendor/inter", "vendor/jetbrains-mono", "icon.svg")

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)")
HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
ENTRY = re.compile(r"^\* \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+)\.md\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kind:
    """A chapter of the index: what its pages are for."""

    title: str
    pages: list[tuple[str, str]]  # The name of each on the site, and what the index calls it.


def gather(project: Path, folder: Path) -> None:
    """Put all that the site is made of into `folder`, which must not be there yet."""
    shutil.copytree(project / "docs", folder)
    for name in filter(lambda name: (project / name).exists(), FRONT):
        (folder / FRONT[name]).write_text((project / name).read_text())
    for page in [*(project / "docs").glob("*.md"), *(project / name for name in FRONT)]:
        if page.exists():
            place = folder / place_of(page.relative_to(project))
            place.write_text(with_links_of_the_site(page, project, folder))
    (folder / "README.md").unlink()
    index = folder / "index.md"
    index.write_text(index.read_text() + contents(kinds_in(index.read_text())))
    for look in LOOKS:
        copy(project / "static" / look, folder / "_static" / look)


def kinds_in(index: str) -> list[Kind]:
    """The chapters of the index, as written for the site."""
    _, *parts = HEADING.split(index)
    titles, texts = parts[::2], parts[1::2]
    return [Kind(title, [(found["page"], found["title"]) for found in ENTRY.finditer(text)])
            for title, text in zip(titles, texts, strict=True)]  # fmt: skip


def contents(kinds: Iterable[Kind]) -> str:
    """By which Sphinx knows the order of the pages; it says which ones are missing."""
    lines = [page for kind in kinds for page, _ in kind.pages]
    return "\n".join(["\n```{toctree}\n:hidden:\n", *lines, "```\n"])


def with_links_of_the_site(page: Path, project: Path, folder: Path) -> str:
    """The text of a page. What it leads to outside of docs/ is copied, to be downloaded."""

    def led(found: re.Match[str]) -> str:
        target = (page.parent / found["path"]).resolve()
        if not target.is_relative_to(project) or not target.is_file():
            return found["path"]  # Sphinx tells that it is not there.
        place = place_of(target.relative_to(project))
        if not (folder / place).exists():
            copy(target, folder / place)
        return place.as_posix()

    return "".join(part if is_code else LINK.sub(led, part) for part, is_code in parts_of(page.read_text()))


def parts_of(text: str) -> Iterator[tuple[str, bool]]:
    """Text and blocks of code by turns."""
    for number, part in enumerate(re.split(r"^(```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)):
        yield part, number % 2 == 1


def place_of(path: Path) -> Path:
    """Where a file of the project lies in the folder."""
    name = path.as_posix()
    if name == INDEX:
        return Path("index.md")
    if name in FRONT:
        return Path(FRONT[name])
    return path.relative_to("docs") if name.startswith("docs/") else Path("files", path)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
