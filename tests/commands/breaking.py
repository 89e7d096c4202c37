"""A store that is away when it is told to be, as when the server is started anew; and one with another time."""

from msgspec.structs import replace


class Breaking:
    def __init__(self, store):
        self._store = store
        self.problem = None  # Set: it is raised by every call.
        self.refused = 0  # So many calls.

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        return self._broken(verb) if callable(verb) else verb

    def _broken(self, verb):
        def call(*args, **kwargs):
            if self.problem:
                self.refused += 1
                raise self.problem
            return verb(*args, **kwargs)

        return call


class Elsewhere:
    """Its clock is so many days ahead of the one of this machine."""

    def __init__(self, store, days):
        self._store, self._ahead_ms = store, days * 86_400_000

    def __getattr__(self, name):
        return getattr(self._store, name)

    def claim(self, *args, **kwargs):
        claimed = self._store.claim(*args, **kwargs)
        return [replace(task, available_at_ms=task.available_at_ms + self._ahead_ms) for task in claimed]
