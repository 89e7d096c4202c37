import pytest


@pytest.mark.parametrize("path", ["/groups", "/group"])
def test_it_lists_the_groups_that_hold_a_task(api, path):
    for name in ("reports", "mail", "Zeta", "ärger"):
        api.add(name)
    gone = api.add("gone")
    api.committed(deletes=[gone["id"]])
    assert api.get(path) == (200, ["Zeta", "mail", "reports", "ärger"])


@pytest.mark.parametrize("path", ["/groups", "/group"])
def test_an_empty_store_has_none(api, path):
    assert api.get(path) == (200, [])


def test_a_slash_at_the_end_is_another_path(api):
    assert api.get("/groups/")[0] == 404
