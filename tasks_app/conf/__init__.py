"""Settings that are more than a number: how long tasks and records are kept, how command lists are made."""
