"""A store with a server of its own for each test, on the database that this run is for."""

from tests.server.conftest import copies, started_once, store  # noqa: F401 - fixtures
