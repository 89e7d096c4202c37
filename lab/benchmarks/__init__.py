"""What `manage.py bench` measures, and how.

A *contender* (contenders.py) is something that hands out tasks: this store by one of its ways in,
the bare database, a peer. A *scene* (scenes.py) is a table of the report: contenders under
loads, measured in turn. Each contender works in a *place* (places.py) made for the scene: a
database, and a server where it has one. A *client* (clients/) is the processes that do the work.
"""


class CannotMeasure(Exception):
    """A contender did not do what it was told, or not all of it; the text says what."""
