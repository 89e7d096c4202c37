import pytest

from .api import ANN


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clientid", None),
        ("group", ""),
        ("limit", 0),
        ("limit", 1_001),
        ("order", "newest"),
        ("duration", 2**63 - 1),
        ("depends", [1.0]),
        ("wait", -1),
        ("wait", 60_001),
        ("groups", ["mail"]),
    ],
)
def test_a_wrong_field_is_named(api, field, value):
    api.add()
    status, answer = api.post("/claim", {"clientid": ANN, "group": "mail", field: value})
    assert status == 400
    assert [path.partition("[")[0] for path in answer["errors"]] == [field]
    assert len(api.get("/group/mail")[1]) == 1
