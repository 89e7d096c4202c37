"""Many values for one test of the suite."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def with_each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test's body once for each value, each as a subtest, as `pytest.mark.parametrize` does.

    All of them run on the same store: on PostgreSQL, starting a writer for each takes longer than the body.
    """
    fields = [name.strip() for name in names.split(",")]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for value in values:
                named = dict(zip(fields, value if len(fields) > 1 else [value], strict=True))
                with subtests.test(**{name: repr(given) for name, given in named.items()}):
                    test(**fixtures, **named)

        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in fields]
        asked = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(run)["__signature__"] = signature.replace(parameters=[asked, *fixtures])
        return run

    return decorate
