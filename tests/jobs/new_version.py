"""What only the workers of a newer version run, in tests of deploys."""

from taskstore import job


@job(max_attempts=5)
def renamed(value):
    return value
