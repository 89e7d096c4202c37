"""What is said about a wrong field, whichever way in it came."""

import pytest

from taskstore.types import sentences

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (sentences.between(1, 1_000, 5_000), "must be between 1 and 1000, not 5000"),
        (sentences.between(1, 1_000, "5"), "must be an integer between 1 and 1000, not a string"),
        (sentences.between(1, 1_000, True), "must be an integer between 1 and 1000, not a boolean"),
        (sentences.between(1, 1_000, 1.0), "must be an integer between 1 and 1000, not a floating-point number"),
        (sentences.between(1, 1_000), "must be an integer between 1 and 1000"),
        (sentences.between(1, 1_000, 10**20), "must be between 1 and 1000"),
        (sentences.int64(2**63), "must be a 64-bit integer, not 9223372036854775808"),
        (sentences.int64([]), "must be a 64-bit integer, not a list"),
        (sentences.at_most(64, "labels", 65), "must have at most 64 labels, not 65"),
        (sentences.one_of(["random", "oldest"], "newest"), 'must be one of random, oldest, not "newest"'),
        (sentences.one_of(["random", "oldest"], "\ud800"), 'must be one of random, oldest, not "\\ud800"'),
        (sentences.one_of(["random", "oldest"], "x" * 99), "must be one of random, oldest"),
        (sentences.one_of(["random", "oldest"], {}), "must be one of random, oldest, not an object"),
        (sentences.unknown("field", ["reason"]), "is not a known field; use reason"),
        (sentences.unknown("field", ["ids", "reason"]), "is not a known field; use one of ids, reason"),
        (sentences.unknown("parameter", []), "is not a known parameter; none are allowed here"),
        (sentences.not_together("state", "q"), "must not be given together with state or q"),
    ],
)
def test_it_says_what_would_be_right(said, sentence):
    assert said == sentence
