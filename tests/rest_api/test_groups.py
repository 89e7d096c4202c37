import pytest


@pytest.mark.parametrize("path", ["/groups", "/group"])
def test_it_lists_the_groups_that_hold_a_task(api, path):
    for name in ("reports", "mail", "Zeta", "ärger"):
        api.add(name)
    gone = api.add("gone")
    api.committed(deletes=[gone["id"]])
    assert api.get(path) == (200, ["Zeta", "mail", "reports", "ärger"])
