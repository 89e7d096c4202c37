"""What axe finds wrong on a page in either theme."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

RULES = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "dark": {"type": "rule", "values": ["color-contrast"]},  # The same page in other colours.
}


def complaints(page: Page) -> list[tuple[str, ...]]:
    """Return the theme, rule, place and reason of each. The page is left dark."""
    # Once a page: loading it takes as long as a run.
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    # Pages react to a new width of the window in the next frame.
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    found: list[tuple[str, ...]] = []
    for theme, rules in RULES.items():
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        # To describe all that is right, too, would take most of the time.
        options = {"runOnly": rules, "resultTypes": ["violations"]}
        violations = page.evaluate("options => axe.run(options).then(results => results.violations)", options)
        found += [
            (theme, rule["id"], node["html"], node["failureSummary"]) for rule in violations for node in rule["nodes"]
        ]
    return found
