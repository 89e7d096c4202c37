"""A store that is away when it is told to be: as when the server is started anew."""


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
