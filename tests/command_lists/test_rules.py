"""When lists are made, as a setting says."""

import pytest

from tasks_app.conf.command_rules import MOST_COMMANDS, rule_of, rules_in

pytestmark = pytest.mark.once


def test_a_rule_says_how_many_how_long_and_how_old():
    [rule] = rules_in("nightly*=20/90s/2min")
    assert (rule.pattern, rule.count, rule.duration_s, rule.age_ms) == ("nightly*", 20, 90, 120_000)


@pytest.mark.parametrize(
    ("project", "count"), [("nightly", 1), ("nightly.a", 2), ("a=b", 3), ("other", 50), ("NIGHTLY", 50)]
)
def test_the_first_rule_about_a_project_counts_and_else_the_default(settings, project, count):
    settings.TASKSTORE_COMMAND_LISTS = "nightly=1/1s/0s nightly*=2/1s/0s a=b=3/1s/0s"
    assert rule_of(project).count == count


@pytest.mark.parametrize(
    "word",
    [
        "*", "*=", "*=50", "*=50/10min", "=50/10min/1s", "*=0/10min/1s", f"*={MOST_COMMANDS + 1}/10min/1s",
        "*=50/0s/1s", "*=50/10/1", "*=50/10min/1s/1s", "*=-1/10min/1s", "*=\u0665/10min/1s", "*=50/10months/1s",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_by_name(word):
    with pytest.raises(ValueError, match="is not a rule") as refused:
        rules_in(f"a=1/1s/1s {word}")
    assert word in str(refused.value)
