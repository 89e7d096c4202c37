"""How many examples hypothesis generates."""

from hypothesis import HealthCheck, Phase, settings

THOROUGH = 10


def examples(usual: int) -> int:
    """So many in a usual run, and ten times as many with `--all`."""
    return usual * THOROUGH if settings.get_current_profile_name() == "thorough" else usual


def of_sequences(most: int) -> settings:
    """For sequences of operations: drawing them is slow on a busy machine, and shortening them takes minutes."""
    return settings(
        max_examples=most, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], database=None
    )
