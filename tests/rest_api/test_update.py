import pytest

from tasks_app.models import Task

from .api import ANN, BOB, Api


def test_a_task_has_the_documented_fields_and_ours(api):
    task = api.add(data="letter", labels={"to": "Bob"}, priority=3, error="bounced", timespec=1388552400000)
    assert task == {
        "id": task["id"],
        "group": "mail",
        "data": "letter",
        "timespec": 1388552400000,
        "ownerid": ANN,
        "error": "bounced",
        "labels": {"to": "Bob"},
        "priority": 3,
        "origin": task["id"],
        "claims": 0,
        "created": task["created"],
    }


def test_a_refusal_is_an_answer_of_status_200_that_lists_every_reason(api):
    leased = api.add(timespec=-60_000)["id"]
    assert api.post(
        "/update",
        {"clientid": BOB, "updates": [{"id": leased}, {"id": 0}], "deletes": [-7, -7], "depends": [0], "adds": [{}]},
    ) == (
        200,
        {
            "tasks": [],
            "error": {
                "changes": [0],
                "deletes": [-7],
                "depends": [0],
                "owned": [leased],
                "bugs": [
                    "adds[0] has no group: name a group for the task",
                    "task -7 is named 2 times within updates and deletes: name it once",
                ],
            },
        },
    )


@pytest.mark.parametrize("body", [{}, {"adds": None, "updates": [], "depends": None}])
def test_an_update_that_does_nothing_is_refused(api, body):
    status, answer = api.post("/update", {"clientid": ANN, **body})
    assert (status, answer["tasks"]) == (200, [])
    assert answer["error"] == {
        "changes": [],
        "deletes": [],
        "depends": [],
        "owned": [],
        "bugs": ["nothing to do: name at least one add, update or delete"],
    }


@pytest.mark.parametrize(
    ("sent", "data", "data_base64"),
    [
        ({"data": "tab\there, NUL\0, emoji 😀"}, "tab\there, NUL\0, emoji 😀", None),
        ({"data_base64": "/wA="}, None, "/wA="),
        ({"data_base64": "aGk="}, "hi", None),
        ({"data": None, "data_base64": "aGk="}, "hi", None),
        ({}, "", None),
    ],
)
def test_data_is_text_or_base64(api, sent, data, data_base64):
    task = api.add(**sent)
    assert (task["data"], task.get("data_base64")) == (data, data_base64)


def test_a_task_can_be_sent_back_as_it_came(api):
    task = api.add(data_base64="/w==", data_type="type.example/Letter", labels={"to": "Bob"}, priority=-100)
    [same] = api.committed(updates=[task])
    assert same == task | {"id": same["id"]}
    [copy] = api.committed(adds=[same], deletes=[same["id"]])
    assert copy == same | {"id": copy["id"]}


def test_an_update_keeps_labels_and_priority_but_neither_data_nor_error(api):
    task = api.add(data="1", error="bounced", data_type="t/T", labels={"to": "Bob"}, priority=5)
    [new] = api.committed(updates=[{"id": task["id"], "group": "elsewhere"}])
    assert (new["group"], new["labels"], new["priority"]) == ("mail", {"to": "Bob"}, 5)
    assert (new["data"], new["error"], "data_type" in new) == ("", "", False)


def test_an_update_can_clear_labels_and_priority(api):
    task = api.add(labels={"to": "Bob"}, priority=5)
    [new] = api.committed(updates=[{"id": task["id"], "labels": {}, "priority": 0}])
    assert (new["labels"], new["priority"]) == ({}, 0)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, ("1", "t/T", "bounced")),
        ({"data": "2"}, ("2", None, "bounced")),
        ({"data": ""}, ("", None, "bounced")),
        ({"data_base64": "Mg==", "data_type": "t/U"}, ("2", "t/U", "bounced")),
        ({"data_type": "t/U"}, ("1", "t/U", "bounced")),
        ({"error": "lost"}, ("1", "t/T", "lost")),
        ({"error": ""}, ("1", "t/T", "")),
        ({"data": None, "error": None}, ("1", "t/T", "bounced")),
    ],
)
def test_with_keep_what_is_named_changes_and_the_rest_stays(api, named, expected):
    task = api.add(data="1", error="bounced", data_type="t/T")
    [new] = api.committed(updates=[{"id": task["id"], "keep": True, **named}])
    assert (new["data"], new.get("data_type"), new["error"]) == expected


@pytest.mark.parametrize(
    "named",
    [{}, {"data": "2"}, {"error": "", "labels": {}, "priority": 0}, {"data_base64": "/w==", "data_type": "t/U"}],
)
def test_an_add_with_keep_moves_the_task_that_the_commit_deletes(api, named):
    api.add(data="1", error="bounced", data_type="t/T", labels={"to": "Bob"}, priority=5)
    [task] = api.claimed()
    [moved] = api.committed(adds=[{"group": "reports", "id": task["id"], "keep": True, **named}], deletes=[task["id"]])
    same = {name: value for name, value in task.items() if not ("data" in named and name == "data_type")}
    shown = {"data": None} if "data_base64" in named else {}
    news = {"id": moved["id"], "group": "reports", "timespec": moved["timespec"], **named, **shown}
    assert moved == same | news
    steps = api.get(f"/history/{task['id']}")[1]["steps"]
    assert [step["ended"] and step["ended"]["how"] for step in steps] == ["claimed", "moved", None]


def test_keep_and_release_of_an_add_need_the_task_that_they_are_about(api):
    first, second = (api.add(data=data)["id"] for data in "12")
    adds = [
        {"group": "reports", "id": first, "keep": True},
        {"group": "reports", "id": second, "keep": True},
        {"group": "reports", "keep": True},
        {"group": "reports", "id": first, "keep": True},
        {"group": "reports", "release": True},
    ]
    status, answer = api.post("/update", {"clientid": ANN, "adds": adds, "deletes": [first]})
    assert status == 400
    assert answer["errors"].keys() == {"adds[1].keep", "adds[2].keep", "adds[3].keep", "adds[4].release"}
    assert [task["id"] for task in api.get("/group/mail")[1]] == [first, second]


def test_a_move_to_a_foreign_group_is_forbidden_and_from_one_finds_nothing(api):
    mine, foreign = api.add("mail")["id"], api.add("reports")["id"]
    limited = Api(groups=("mail",))
    body = {"clientid": ANN, "adds": [{"group": "reports", "id": mine, "keep": True}], "deletes": [mine]}
    assert limited.post("/update", body)[0] == 403
    body = {"clientid": ANN, "adds": [{"group": "mail", "id": foreign, "keep": True}], "deletes": [foreign]}
    assert limited.post("/update", body)[1]["error"]["deletes"] == [foreign]
    assert api.get(f"/task/{mine}")[0] == api.get(f"/task/{foreign}")[0] == 200


@pytest.mark.parametrize(("sent", "expected_ms"), [(-60_000, 60_000), (0, 0), (4_000_000_000_000, None)])
def test_duration_is_another_name_for_timespec(api, sent, expected_ms):
    before = Task.objects.now_ms()
    old = api.add(duration=sent)
    [new] = api.committed(updates=[{"id": old["id"], "duration": sent, "timespec": sent}])
    for task in (old, new):
        if expected_ms is None:
            assert task["timespec"] == sent
        else:
            assert before + expected_ms <= task["timespec"] <= Task.objects.now_ms() + expected_ms


def test_it_names_every_wrong_field_of_values_and_of_types(api):
    status, answer = api.post(
        "/update",
        {
            "adds": [{"group": "x" * 256, "data": 1}, {"group": "mail", "data": "1", "data_base64": "MQ=="}],
            "updates": [{"id": 1}, 7, {"id": "1", "keep": True, "error": 1, "priority": 101}],
            "deletes": {"1": 2},
            "mystery": 1,
        },
    )
    assert status == 400
    assert answer["errors"].keys() == {
        "adds[0].group",
        "adds[0].data",
        "adds[1].data_base64",
        "clientid",
        "deletes",
        "mystery",
        "updates[1]",
        "updates[2].id",
        "updates[2].error",
        "updates[2].priority",
    }
    assert answer["errors"]["updates[2].priority"] == ["must be between -100 and 100, not 101"]


# ----


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
