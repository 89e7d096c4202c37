"""Makes the site, by Sphinx in a process of its own: it is not made to run in threads.

Standard library only: it also runs where a wheel is built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .sources import FRONT, LOOKS, gather

HERE = Path(__file__).parent


class CannotBuild(Exception):
    """The site could not be made; the text says why, in Sphinx's words."""


def build(project: Path, target: Path, *, strict: bool = False) -> None:
    """Make the site of a checkout in `target`, whole or not at all; what is there already stays.

    With `strict` a link that leads nowhere is an error. Raises CannotBuild.
    """
    if not importlib.util.find_spec("myst_parser"):
        raise CannotBuild('Sphinx and myst-parser are not installed: python3 -m pip install "sphinx" "myst-parser"')
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".docs-") as place:
        sources, site = Path(place, "sources"), Path(place, "site")
        gather(project, sources)
        run_sphinx(sources, site, strict=strict)
        shutil.rmtree(site / ".doctrees", ignore_errors=True)
        shutil.rmtree(site / "_sources", ignore_errors=True)
        (site / ".buildinfo").unlink(missing_ok=True)
        try:
            os.rename(site, target)
        except OSError as problem:
            if not (target / "index.html").exists():  # Another process was faster.
                raise CannotBuild(f"can't write {target}: {problem.strerror}") from problem


def run_sphinx(sources: Path, site: Path, *, strict: bool) -> None:
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", str(HERE), "--quiet", "--nitpicky"]
    looks = ["--define", f"html_static_path={sources / '_static'}"]
    strictly = ["--fail-on-warning", "--keep-going"] if strict else []
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    asked = [*command, *looks, *strictly, str(sources), str(site)]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(done.stderr.strip())


def fingerprint(project: Path) -> str:
    """Another one when anything has changed of what the site is made of."""
    looks = (project / "static" / name for name in LOOKS)
    places = [project / "docs", HERE, *(project / name for name in FRONT), *looks]
    digest = hashlib.sha256()
    for file in sorted(file for place in places for file in (place, *place.rglob("*")) if is_source(file)):
        digest.update(f"{file.relative_to(project)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def is_source(file: Path) -> bool:
    return file.is_file() and file.suffix != ".pyc"
