"""The clients of the REST API, sync and async: connection, retries, and a method for each endpoint."""
