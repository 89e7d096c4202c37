"""Builds the generated pages and the pictures of the documentation."""
