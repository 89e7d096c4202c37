"""The files of docs/deployment, as machines are given them: read, and put where a test has its ports and folders."""

from __future__ import annotations

import sys
from configparser import ConfigParser
from pathlib import Path

from lab.testing import PROJECT

DEPLOYMENT = PROJECT / "docs" / "deployment"
INSTALLED = "/opt/taskstore/bin/taskstore"


def text_of(name: str, **replaced: str) -> str:
    """A file with some words in place of others; each of these has to stand in it."""
    text = (DEPLOYMENT / name).read_text()
    return swapped(text, replaced)


def swapped(text: str, replaced: dict[str, str]) -> str:
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Unit(ConfigParser):
    """A unit of systemd. Of lines that may stand several times the last one."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, interpolation=None, delimiters="=")
        self.read_string((DEPLOYMENT / name).read_text())

    def optionxform(self, optionstr: str) -> str:
        return optionstr  # Capitals count.


def variables_of(name: str) -> dict[str, str]:
    """What an EnvironmentFile sets."""
    lines = (DEPLOYMENT / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def taskstore_in(folder: Path) -> Path:
    """A program called `taskstore`, which does what the installed one does."""
    program = folder / "taskstore"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{PROJECT / "manage.py"}" "$@"\n')
    program.chmod(0o755)
    return program
