"""Django's admin for ad hoc edits, which go through the store. `policy.may` decides about each page."""

from . import batches, limits, tasks

__all__ = ["batches", "limits", "tasks"]
