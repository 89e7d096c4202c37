"""Sphinx's settings for the site."""

from pathlib import Path
from typing import Any

from taskstore_project.documentation.sources import kinds_in

project = "Task Store"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["files", "examples"]
myst_heading_anchors = 4  # As a forge makes them.
suppress_warnings = ["myst.header"]  # What has no chapter of its own may stand a level deeper.

html_theme = "theme"
html_theme_path = [str(Path(__file__).parent)]
html_title = "Task Store"
html_permalinks_icon = "#"
html_copy_source = html_show_sourcelink = html_use_index = False
highlight_language = "text"


def setup(app: Any) -> None:
    app.connect("html-page-context", add_kinds)


def add_kinds(app: Any, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """What the contents beside each page show."""
    context["kinds"] = kinds_in(Path(app.srcdir, "index.md").read_text())
