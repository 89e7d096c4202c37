"""The console on a store full of seeded tasks: what the server takes for a page, and what happens in a browser."""
