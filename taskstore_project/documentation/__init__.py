"""The documentation as a site: made of README.md and docs/ by Sphinx, served under /docs/."""
