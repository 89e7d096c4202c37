"""Searches that a person saves under a name. Nobody else sees the names; a search is shared by its address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError

from taskstore.errors import InvalidInput, LimitExceeded, refuse
from taskstore.types.sentences import text

from ..access.people import Person
from ..database import atomic
from ..models import SavedSearch
from .search import grammar

MOST = 50  # Per person.
NAME_LENGTH = 100


def saved_by(user: Person) -> list[SavedSearch]:
    """Return the searches of the user, by name."""
    return sorted(SavedSearch.objects.filter(user=user), key=lambda saved: saved.name.casefold())


def save(user: Person, name: str, q: str) -> SavedSearch:
    """Save a search. Raises InvalidInput about an empty search or a name already in use, LimitExceeded beyond 50."""
    if not grammar.parse(q):
        raise InvalidInput({"q": ["must have at least one term"]})
    if SavedSearch.objects.filter(user=user).count() >= MOST:
        raise LimitExceeded({"name": [f"you already have {MOST} saved searches, the maximum: delete one first"]})
    with _unique(name):
        return SavedSearch.objects.create(user=user, name=name, q=q)


def rename(user: Person, search_id: int, name: str) -> None:
    """Rename a search. Raises InvalidInput when the user has no such search, or another one of that name."""
    with _unique(name):
        if not SavedSearch.objects.filter(user=user, id=search_id).update(name=name):
            raise InvalidInput({"search": ["must be one of your saved searches: this one may have been deleted"]})


def delete(user: Person, search_id: int) -> None:
    """Delete a search, if it still exists."""
    with atomic():
        SavedSearch.objects.filter(user=user, id=search_id).delete()


@contextmanager
def _unique(name: str) -> Iterator[None]:
    if not name:
        raise InvalidInput({"name": ["must not be empty"]})
    refuse(text("name", name, NAME_LENGTH))
    try:
        with atomic():
            yield
    except IntegrityError:
        raise InvalidInput({"name": [f"must be unique: you have another search named {name}"]}) from None
