"""The seeded faults have a place in the product as it is now, and tests that can notice them."""

import pytest

from lab.faults import all_faults
from lab.testing import PROJECT

pytestmark = pytest.mark.once


def test_each_fault_has_its_place_and_its_tests():
    faults = all_faults()  # Raises when a place is gone.
    assert len(faults) > 50
    missing = {name for fault in faults for name in fault.tests if not (PROJECT / name.split("::")[0]).exists()}
    assert missing == set()
