"""What `manage.py test` runs, and what it starts for that."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent


class CannotTest(Exception):
    """Something the tests need can't be had; the text names the remedy."""
