"""Stores on which a server has been started, as tests/server has them."""

from ..server.conftest import copies, lasting_server, lasting_store, started_once  # noqa: F401 - fixtures
