"""A token for some queues neither sees nor changes, claims from or spawns into another one, by any route."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from covey.core.endpoints import ENDPOINTS
from covey.core.model import Report
from covey.core.turn import Turn
from covey.web.api import check_jobs
from covey.web.auth import Guest
from tests.kit import HandPool
from tests.kit.factories import child, command, pool_info

from .house import CLOSED, House

HARMLESS = {
    "server": "says whose server it is",
    "settings": "settings are those of the whole",
    "lost_pools": "empty",
    "orphaned_pools": "empty",
    "callers": "without those of the other one's jobs",
    "queues": "without the other one",
    "wait": "asked for a pool of the other queue",
}


@pytest.fixture
def limited(guarded: House) -> dict[str, str]:
    return {role: guarded.token(role, "own") for role in ("read", "client", "worker")}


def test_every_example_of_the_other_queue_is_refused(guarded: House, limited: dict[str, str]) -> None:
    """The same requests succeed for the own queue, with the same tokens."""
    before = guarded.version()
    tried = 0
    for endpoint in CLOSED:
        role = {"read": "read", "client": "client", "worker": "worker"}.get(endpoint.role or "")
        if role is None:
            continue
        said = guarded.visit(endpoint, "other", token=limited[role])
        if endpoint.name in HARMLESS and said.status == 200:
            assert b"other" not in said.body, endpoint.name
            continue
        assert said.status in (403, 404), (endpoint.name, said)
        tried += 1
    assert tried > 25
    assert guarded.version() == before, "something was written"


def test_what_is_refused_for_the_other_queue_is_granted_for_the_own_one(
    guarded: House, limited: dict[str, str]
) -> None:
    for endpoint in CLOSED:
        if endpoint.role != "admin" and endpoint.scoped:
            guarded.furnish()
            said = guarded.visit(endpoint, "own", token=limited[str(endpoint.role)])
            assert said.status == 200, (endpoint.name, said)


def test_nothing_is_listed_of_another_queue(guarded: House, limited: dict[str, str]) -> None:
    def ids(said: Any) -> set[int]:
        return {job["id"] for job in said.json["jobs"]}

    own = {guarded.jobs["own"][0], guarded.waiting["own"], guarded.ended["own"]}
    everything = [*own, guarded.jobs["other"][0], guarded.waiting["other"]]
    read = limited["read"]
    assert ids(guarded.ask("GET", "/v1/jobs", token=read)) == own
    assert ids(guarded.ask("POST", "/v1/jobs/find", {"ids": everything}, token=read)) == own
    assert guarded.ask("GET", "/v1/jobs?queue=other", token=read).status == 403
    two = guarded.token("read", "own", "third")
    assert guarded.ask("GET", "/v1/jobs", token=two).status == 403
    names = [queue["name"] for queue in guarded.ask("GET", "/v1/queues", token=read).json]
    assert names == ["own"]
    streamed = guarded.ask("GET", "/v1/stream", token=read)
    assert [queue["name"] for queue in json.loads(streamed.body.partition(b"data: ")[2].split(b"\n")[0])] == ["own"]
    assert b"event: event" not in streamed.body
    mixed = f"/v1/stream?job={guarded.jobs['own'][0]}&job={guarded.jobs['other'][0]}"
    assert guarded.ask("GET", mixed, token=read).status == 404
    assert guarded.ask("POST", "/v1/jobs/wait", {"ids": everything, "timeout_s": 0}, token=read).status == 404


def test_one_strange_job_among_many_spoils_the_change(guarded: House, limited: dict[str, str]) -> None:
    refs = [guarded.waiting["own"], guarded.waiting["other"]]
    for verb in ("cancel", "retry", "remove"):
        assert guarded.ask("POST", f"/v1/jobs/{verb}", {"refs": refs}, token=limited["client"]).status == 404
    assert [guarded.engine.job(ref).state for ref in refs] == ["pending", "pending"]


def test_a_job_cannot_be_moved_into_another_queue_or_out_of_it(guarded: House, limited: dict[str, str]) -> None:
    client = limited["client"]
    assert guarded.ask("PATCH", f"/v1/jobs/{guarded.waiting['own']}", {"queue": "other"}, token=client).status == 403
    assert guarded.ask("PATCH", f"/v1/jobs/{guarded.waiting['other']}", {"queue": "own"}, token=client).status == 404
    assert guarded.engine.job(guarded.waiting["own"]).queue == "own"


def test_a_child_in_another_queue_is_not_shown(guarded: House, limited: dict[str, str]) -> None:
    job, pool, fence = guarded.jobs["own"]
    turn = Turn(pool=pool, database_id=guarded.engine.database_id, number=2)
    turn.reports = [Report(job, fence, "success", spawned=[child(queue="own"), child(queue="other")])]
    guarded.engine.turn(turn)
    seen = guarded.ask("GET", f"/v1/jobs/{job}/tree", token=limited["read"]).json
    assert [each["queue"] for each in seen["children"]] == ["own"]
    assert len(guarded.ask("GET", f"/v1/jobs/{job}/tree", token=guarded.token("read")).json["children"]) == 2


def test_no_way_to_claim_from_another_queue(guarded: House, limited: dict[str, str]) -> None:
    worker = limited["worker"]
    _, foreign, _ = guarded.jobs["other"]
    info = msgspec.to_builtins(pool_info(queues=("own",)))
    for wrong in ({"queues": None}, {"queues": ["other"]}, {"queues": ["own", "other"]}, {"types": {"other": 1}}):
        assert guarded.ask("POST", "/v1/pools", info | wrong, token=worker).status == 403, wrong
    pool = guarded.ask("POST", "/v1/pools", info, token=worker).json["pool"]
    turn = {"pool": pool, "database_id": guarded.engine.database_id, "number": 1}
    for queues in (None, ["other"], ["own", "other"]):
        want = {"queues": queues, "places": {"command": 1}, "limit": 1}
        said = guarded.ask("POST", f"/v1/pools/{pool}/turn", turn | {"wants": [want]}, token=worker)
        assert said.status == 403, queues
        assert guarded.ask("POST", "/v1/jobs/claim", {"queues": queues}, token=worker).status == 403
    for path in (f"/v1/pools/{foreign}/leave", f"/v1/pools/{foreign}/wait", f"/v1/pools/{foreign}/turn"):
        body = {"leave": None, "wait": {"timeout_s": 0}}.get(
            path.rsplit("/")[-1], turn | {"pool": foreign, "number": 2}
        )
        assert guarded.ask("POST", path, body, token=worker).status == 403, path
    waits = {"queues": ["other"], "timeout_s": 0}
    assert guarded.ask("POST", f"/v1/pools/{pool}/wait", waits, token=worker).status == 403
    assert guarded.engine.job(guarded.waiting["other"]).state == "pending"


def test_a_pool_of_one_queue_cannot_report_a_job_of_another(guarded: House, limited: dict[str, str]) -> None:
    worker = limited["worker"]
    pool = guarded.ask("POST", "/v1/pools", msgspec.to_builtins(pool_info(queues=("own",))), token=worker).json["pool"]
    job, _, fence = guarded.jobs["other"]
    turn = {"pool": pool, "database_id": guarded.engine.database_id, "number": 1}
    for report in ([job, fence, "success"], [job, fence, "gone"], [job, fence - 1, "gone"]):
        said = guarded.ask("POST", f"/v1/pools/{pool}/turn", turn | {"reports": [report]}, token=worker)
        assert said.status == 200
        assert [each[0] for each in said.json["reply"]["refused"]] == [report[0]]
        turn["number"] += 1
    pending = guarded.waiting["other"]
    assert guarded.ask("POST", f"/v1/pools/{pool}/turn", turn | {"reports": [[pending, 0, "abort"]]}, token=worker)
    assert [guarded.engine.job(each).state for each in (job, pending)] == ["processing", "pending"]


def test_a_child_is_not_told_of_failed_siblings_in_another_queue(guarded: House, limited: dict[str, str]) -> None:
    engine = guarded.engine
    pool = HandPool(engine, queues=("family", "own", "other"))
    engine.enqueue([command(queue="family", priority=9)])
    kids = [child(queue=queue, priority=9, max_attempts=1) for queue in ("own", "other", "own")]
    pool.spawn(pool.claim_one(), *kids)
    first, second, last = sorted(pool.claim(3), key=lambda claim: claim.id)
    pool.fail(first)
    pool.fail(second)
    holding = {"pool": pool.id, "fence": last.fence}
    said = guarded.ask("POST", f"/v1/jobs/{last.id}/failed-siblings", holding, token=limited["worker"])
    assert (said.status, [each["id"] for each in said.json]) == (200, [first.id])
    said = guarded.ask("POST", f"/v1/jobs/{last.id}/failed-siblings", holding, token=guarded.token("worker"))
    assert [each["id"] for each in said.json] == [first.id, second.id]


def test_no_way_to_enqueue_or_spawn_into_another_queue(guarded: House, limited: dict[str, str]) -> None:
    client, worker = limited["client"], limited["worker"]
    before = guarded.version()
    for jobs in ([{"command": "true"}], [{"command": "true", "queue": "own"}, {"command": "true", "queue": "other"}]):
        assert guarded.ask("POST", "/v1/jobs", {"jobs": jobs}, token=client).status == 403
    specs = [msgspec.to_builtins(command(queue=queue)) for queue in ("own", "other")]
    assert guarded.ask("POST", "/v1/jobs/specs", {"specs": specs}, token=client).status == 403
    job, pool, fence = guarded.jobs["own"]
    asked = {"pool": pool, "fence": fence, "jobs": [{"command": "true", "queue": "other"}]}
    for relation in ("child", "sibling", "after"):
        said = guarded.ask("POST", f"/v1/jobs/{job}/spawn", asked | {"relation": relation}, token=worker)
        assert said.status == 403
    spawn = ["child", msgspec.to_builtins(command()), "other"]
    report = [job, fence, "success", *[None] * 10, [spawn]]
    turn = {"pool": pool, "database_id": guarded.engine.database_id, "number": 2, "reports": [report]}
    assert guarded.version() == before
    newest = guarded.engine.newest_id()
    # A turn as a whole is not refused: it would come again for ever, with all that its pool has to say.
    assert guarded.ask("POST", f"/v1/pools/{pool}/turn", turn, token=worker).status == 200
    found = guarded.engine.job(job)
    assert (found.state, found.children.total) == ("dead", 0)
    assert found.error == "what it spawned was refused: this token is for own only, not for other"
    assert guarded.engine.newest_id() == newest


def test_a_thousand_jobs_are_looked_at_in_one_go(
    guarded: House, limited: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ref that is looked at by itself keeps a thread of the server from everybody else."""
    engine = guarded.engine
    mine = [made.id for made in engine.enqueue([command(queue="own", key=f"k{n}") for n in range(40)])]
    asked: list[str] = []
    ask = engine.store.ask
    monkeypatch.setattr(engine.store, "ask", lambda name, /, **given: asked.append(name) or ask(name, **given))
    check_jobs(engine, Guest("client", ("own",)), [*mine, *(f"k{n}" for n in range(40))] * 25)
    monkeypatch.undo()
    assert len(asked) == 2
    for refs in ([*mine, guarded.waiting["other"]], ["k1", "no such key"], [10**18], ["9" * 5000], [*mine, 999_999]):
        said = guarded.ask("POST", "/v1/jobs/cancel", {"refs": refs}, token=limited["client"])
        assert said.status == 404, refs
    assert {engine.job(id).state for id in mine} == {"pending"}
    assert guarded.ask("POST", "/v1/jobs/cancel", {"refs": [*mine, "k1"]}, token=limited["client"]).status == 200


def test_two_clients_do_not_get_each_others_answers(guarded: House) -> None:
    body = {"jobs": [{"command": "true", "queue": "own"}], "request": "mine"}
    tokens = [guarded.token("client"), guarded.token("client")]
    made = [guarded.ask("POST", "/v1/jobs", body, token=token).json for token in (*tokens, *tokens)]
    assert made[0] != made[1]
    assert made[2:] == made[:2]


def test_scoped_routes_are_those_that_look_at_queues() -> None:
    """Whoever adds a route must decide; those that show the whole are for tokens of the whole."""
    assert {each.name for each in CLOSED if not each.scoped} == {
        "reap", "all_events", "status", "pool_views", "pool_events", "stop_pools", "set_setting", "unset_setting",
    }  # fmt: skip
    assert ENDPOINTS["stream"].scoped


# ── names, which are unique in all queues together ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["key", "unique_key"])
@pytest.mark.parametrize("if_exists", ["error", "return"])
@pytest.mark.parametrize("way", ["jobs", "specs"])
def test_a_name_that_is_taken_in_another_queue_gives_nothing_away(
    guarded: House, limited: dict[str, str], name: str, if_exists: str, way: str
) -> None:
    (made,) = guarded.engine.enqueue([command(queue="other", **{name: "secret-name"})])
    (mine,) = guarded.engine.enqueue([command(queue="own", **{name: "own-name"})])

    def enqueue(key: str, token: str) -> Any:
        if way == "jobs":
            job = {"command": "true", "queue": "own", name: key, "if_exists": if_exists}
            return guarded.ask("POST", "/v1/jobs", {"jobs": [job], "request": key}, token=token)
        spec = msgspec.to_builtins(command(queue="own", if_exists=if_exists, **{name: key}))
        return guarded.ask("POST", "/v1/jobs/specs", {"specs": [spec], "request": key}, token=token)

    said = enqueue("secret-name", limited["client"])
    assert (said.status, said.code) == (409, "duplicate")
    assert said.json["error"]["message"] == "the key 'secret-name' is taken in another queue; choose another one"
    assert said.json["error"]["job_id"] is None
    seen = enqueue("own-name", limited["client"])
    found = seen.json["error"]["job_id"] if if_exists == "error" else seen.json[0]["id"]
    assert found == mine.id
    whole = enqueue("secret-name", guarded.token("client"))
    found = whole.json["error"]["job_id"] if if_exists == "error" else whole.json[0]["id"]
    assert found == made.id


def test_another_queues_key_and_a_key_that_nobody_has_are_answered_in_the_same_words(
    guarded: House, limited: dict[str, str]
) -> None:
    guarded.engine.enqueue([command(queue="other", key="secret-name")])

    def said(ref: str) -> list[Any]:
        asked: list[tuple[str, str, Any, str]] = [
            ("GET", f"/v1/jobs/{ref}{tail}", None, "read")
            for tail in ("", "/history", "/output", "/why", "/events", "/tree")
        ]
        asked += [
            ("GET", f"/v1/stream?job={ref}", None, "read"),
            ("PATCH", f"/v1/jobs/{ref}", {"priority": 1}, "client"),
        ]
        asked += [("POST", f"/v1/jobs/{verb}", {"refs": [ref]}, "client") for verb in ("cancel", "retry", "remove")]
        answers = [guarded.ask(method, path, body, token=limited[role]) for method, path, body, role in asked]
        return [(answer.status, answer.body.replace(ref.encode(), b"X")) for answer in answers]

    assert said("secret-name") == said("nobody-s-name")
    assert {status for status, _ in said("secret-name")} == {404}


@pytest.mark.parametrize("name", ["key", "unique_key"])
@pytest.mark.parametrize("way", ["loan", "turn"])
def test_what_is_spawned_under_a_name_of_another_queue_is_refused_and_holds_nobody_back(
    guarded: House, limited: dict[str, str], name: str, way: str
) -> None:
    (made,) = guarded.engine.enqueue([command(queue="other", **{name: "secret-name"})])
    job, pool, fence = guarded.jobs["own"]
    if way == "loan":
        asked = {"pool": pool, "fence": fence, "relation": "after", "jobs": [{"command": "true", name: "secret-name"}]}
        assert guarded.ask("POST", f"/v1/jobs/{job}/spawn", asked, token=limited["worker"]).status == 200
        done = guarded.ask("POST", f"/v1/jobs/{job}/complete", {"pool": pool, "fence": fence}, token=limited["worker"])
    else:
        spawn = ["after", msgspec.to_builtins(command(**{name: "secret-name"})), None, None, "success", ["other"]]
        report = [job, fence, "success", *[None] * 10, [spawn]]
        turn = {"pool": pool, "database_id": guarded.engine.database_id, "number": 2, "reports": [report]}
        done = guarded.ask("POST", f"/v1/pools/{pool}/turn", turn, token=limited["worker"])
    assert done.status == 200
    found = guarded.engine.job(job)
    assert (found.state, found.error) == (
        "dead",
        "what it spawned was refused: the key 'secret-name' is taken in another queue; choose another one",
    )
    assert guarded.engine.job(made.id).state == "pending"


def test_a_child_s_name_that_is_taken_in_another_queue_is_refused_too(guarded: House, limited: dict[str, str]) -> None:
    guarded.engine.enqueue([command(queue="other", unique_key="secret-name")])
    job, pool, fence = guarded.jobs["own"]
    asked = {"pool": pool, "fence": fence, "jobs": [{"command": "true", "unique_key": "secret-name"}]}
    assert guarded.ask("POST", f"/v1/jobs/{job}/spawn", asked, token=limited["worker"]).status == 200
    guarded.ask("POST", f"/v1/jobs/{job}/complete", {"pool": pool, "fence": fence}, token=limited["worker"])
    assert guarded.engine.job(job).state == "dead"


def test_whoever_may_see_all_queues_holds_back_a_job_of_any_by_its_name(guarded: House) -> None:
    (made,) = guarded.engine.enqueue([command(queue="other", unique_key="all-s-name")])
    job, pool, fence = guarded.jobs["own"]
    asked = {
        "pool": pool,
        "fence": fence,
        "relation": "after",
        "jobs": [{"command": "true", "unique_key": "all-s-name"}],
    }
    worker = guarded.token("worker")
    children = {"pool": pool, "fence": fence, "jobs": [{"command": "true"}]}
    for each in (asked, children):
        assert guarded.ask("POST", f"/v1/jobs/{job}/spawn", each, token=worker).status == 200
    guarded.ask("POST", f"/v1/jobs/{job}/complete", {"pool": pool, "fence": fence}, token=worker)
    assert [guarded.engine.job(id).state for id in (job, made.id)] == ["waiting", "blocked"]


@pytest.mark.parametrize("way", ["jobs", "specs"])
def test_a_request_of_200_characters_is_one_and_a_longer_one_is_refused(guarded: House, way: str) -> None:
    token = guarded.token("client")
    path = {"jobs": "/v1/jobs", "specs": "/v1/jobs/specs"}[way]
    for length in (1, 198, 199, 200):
        for text in ("x" * length, "ü" * length):
            spec: Any = {"command": "true"} if way == "jobs" else msgspec.to_builtins(command())
            first, again = (guarded.ask("POST", path, {way: [spec], "request": text}, token=token) for _ in range(2))
            assert (first.status, first.json) == (200, again.json), length
    other = guarded.ask("POST", path, {way: [spec, spec], "request": text}, token=token)
    assert (other.status, f"the request '{text}' was answered before" in other.json["error"]["message"]) == (400, True)
    said = guarded.ask("POST", path, {way: [spec], "request": "x" * 201}, token=token)
    assert (said.status, said.code) == (400, "invalid_input")
    assert "200" in said.json["error"]["message"]
