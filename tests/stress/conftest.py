"""A store with a server of its own for each test, on the database that this run is for."""

from tests.server.conftest import store  # noqa: F401 - a fixture
