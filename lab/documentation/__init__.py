"""Makes the pictures of the documentation."""
