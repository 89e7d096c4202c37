"""Commands on the test database."""

from tests.backup.conftest import command, refusal

__all__ = ["command", "refusal"]
