"""Who asks too often is told when to come again."""

from __future__ import annotations

from rest_framework.exceptions import Throttled
from rest_framework.request import Request

from ..models import Token
from ..request_limits import BY_ADDRESS, BY_TOKEN, WRONG_TOKENS, network_of


class TooManyRequests(Throttled):
    default_detail = "Too many requests."
    extra_detail_singular = extra_detail_plural = "Try again in {wait} s."


def slow_down(request: Request) -> None:
    """Count the request. Raises TooManyRequests when there have been too many by its token, or from its address."""
    if BY_ADDRESS.rate:
        refuse_for(BY_ADDRESS.take(network_of(request._request)))
    if BY_TOKEN.rate and isinstance(request.auth, Token):
        refuse_for(BY_TOKEN.take(request.auth.pk))


def refuse_guesses(request: Request) -> None:
    """Raises TooManyRequests when too many wrong tokens came from there: none is looked up any more."""
    refuse_for(WRONG_TOKENS.wait_s(network_of(request._request)))


def count_guess(request: Request) -> None:
    WRONG_TOKENS.take(network_of(request._request))


def refuse_for(wait_s: int) -> None:
    if wait_s:
        raise TooManyRequests(wait_s)
