"""Stores on which a server has been started, as tests/server has them."""

from ..server.conftest import copies, started_once  # noqa: F401 - fixtures
