"""The documentation under /docs/: README.md, CHANGELOG.md and docs/, rendered by the server."""
