from .api import ANN, BOB


def test_it_tells_the_chain_of_an_id(api):
    first = api.add(data="1")["id"]
    [claimed] = api.claimed(owner=BOB)
    api.committed(clientid=BOB, deletes=[claimed["id"]])
    for asked in (first, claimed["id"]):
        status, answer = api.get(f"/history/{asked}")
        assert (status, answer["id"], answer["origin"]) == (200, asked, first)
        assert [step["id"] for step in answer["steps"]] == [first, claimed["id"]]
    added, leased = answer["steps"]
    assert (added["ownerid"], added["claims"], leased["ownerid"], leased["claims"]) == (ANN, 0, BOB, 1)
    assert added["ended"] == {
        "at": leased["made"],
        "commit": leased["made_by_commit"],
        "clientid": BOB,
        "how": "claimed",
        "successor": claimed["id"],
        "operator": "",
        "reason": "",
    }
    assert (leased["ended"]["how"], leased["ended"]["successor"]) == ("deleted", None)


def test_an_id_that_is_not_known_any_more_says_why(api, settings):
    settings.TASKSTORE_HISTORY = "off"
    gone = api.add()["id"]
    api.committed(deletes=[gone])
    why = "history is switched off, and the task may have another id now"
    assert api.get(f"/history/{gone}") == (404, {"detail": f"Task {gone} does not exist: {why}."})
