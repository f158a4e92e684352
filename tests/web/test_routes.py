"""Every route, generated from the table and from the OpenAPI document, refuses who may not."""

from __future__ import annotations

from threading import Thread

import pytest

from covey.core import tokens
from covey.core.endpoints import ENDPOINTS, Endpoint
from covey.core.tokens import ROLES, Role
from covey.testing.until import until
from covey.web import auth
from covey.web.openapi import document
from tests.kit.factories import command

from .house import CLOSED, EXAMPLES, ROUTES, House, Said

OPEN = {"/health", "/livez", "/readyz", "/openapi.json", "/docs"}
NO_TOKENS = [
    "",
    "nonsense",
    "Bearer",
    "Bearer ",
    "Bearer nonsense",
    "Bearer covey_1_short",
    f"Bearer covey_1_{'A' * 43}",
    f"Bearer covey_{'9' * 30}_{'A' * 43}",
    f"Basic covey_1_{'A' * 43}",
    "Bearer \xff\xfe",
]


def test_the_document_and_the_table_name_the_same_routes() -> None:
    documented = {
        (method.upper(), path): operation
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    }
    assert {(each.method, each.path): each.name for each in ROUTES} == {
        where: operation["operationId"] for where, operation in documented.items()
    }
    for endpoint in ROUTES:
        needs = "security" in documented[endpoint.method, endpoint.path]
        assert needs is (endpoint.role is not None), endpoint.name


def unguarded(routes: list[Endpoint]) -> list[str]:
    return [each.path for each in routes if each.role not in ROLES and each.path not in OPEN]


def test_only_five_routes_are_open_and_each_has_an_example() -> None:
    assert not unguarded(ROUTES)
    assert unguarded([*ROUTES, Endpoint(name="x", method="GET", path="/v1/x", about="", role=None)]) == ["/v1/x"]
    assert {endpoint.path for endpoint in ROUTES if endpoint.role is None} == OPEN
    assert EXAMPLES.keys() == ENDPOINTS.keys(), "a new route needs an example, so that its refusals are tested"


def test_every_example_succeeds_for_an_admin(guarded: House) -> None:
    """Else the refusals below would prove nothing."""
    admin = guarded.token("admin")
    for endpoint in ROUTES:
        guarded.furnish()
        said = guarded.visit(endpoint, token=admin)
        assert said.status == 200, (endpoint.name, said)


def test_nobody_comes_in_without_a_good_token(guarded: House) -> None:
    expired = guarded.token("admin", expires_s=0.001)
    revoked = guarded.token("admin")
    guarded.engine.revoke_token(2)
    good = guarded.token("admin")
    broken = good[:-1] + ("A" if good[-1] != "A" else "B")
    wrong = [*NO_TOKENS, *(f"Bearer {each}" for each in (expired, revoked, broken)), f"Token {good}", f"Bearer {good}x"]
    guarded.visit(CLOSED[0], token=good)
    before = guarded.version()
    for endpoint in CLOSED:
        for headers in [(), *([("authorization", text)] for text in wrong), [("authorization", f"Bearer {good}")] * 2]:
            said = guarded.visit(endpoint, headers=headers)
            assert (said.status, said.code) == (401, "unauthorized"), (endpoint.name, headers, said)
            assert said.headers["www-authenticate"] == "Bearer"
            assert good[-43:] not in said.body.decode()
    assert guarded.version() == before, "something was written"


def test_a_role_that_is_not_enough_is_refused_everywhere(guarded: House) -> None:
    made: dict[Role, str] = {role: guarded.token(role) for role in ROLES}
    before = guarded.version()
    refused = 0
    for endpoint in CLOSED:
        assert endpoint.role is not None
        for role in ROLES:
            if not tokens.may(role, endpoint.role):
                said = guarded.visit(endpoint, token=made[role])
                assert (said.status, said.code) == (403, "forbidden"), (endpoint.name, role, said)
                refused += 1
    assert refused > len(CLOSED)
    assert guarded.version() == before, "something was written"


def test_the_roles_of_routes_that_change_something() -> None:
    """Reading never needs more than reading, and nothing but looking is allowed to who may only look."""
    looking = {"jobs", "wait_for"}
    for endpoint in CLOSED:
        assert (endpoint.role == "read") is (not endpoint.unsafe or endpoint.name in looking) or (
            endpoint.role == "worker" and endpoint.name in ("lost_pools", "orphaned_pools", "callers")
        ), endpoint.name


def test_a_token_is_checked_even_where_none_is_needed(house: House) -> None:
    for endpoint in CLOSED:
        assert house.visit(endpoint, headers=[("authorization", "Bearer nonsense")]).status == 401, endpoint.name
    weak = house.token("read")
    assert house.visit(ENDPOINTS["cancel"], token=weak).status == 403


def test_an_unscoped_route_refuses_a_token_for_some_queues(guarded: House) -> None:
    made = {role: guarded.token(role, "own") for role in ("read", "client", "worker")}
    before = guarded.version()
    for endpoint in CLOSED:
        for role, token in made.items():
            if not endpoint.scoped and tokens.may(tokens.check_role(role), endpoint.role or "read"):
                assert guarded.visit(endpoint, token=token).status == 403, endpoint.name
    assert guarded.version() == before


def test_a_revoked_token_is_refused_within_a_second_or_so(guarded: House) -> None:
    token = guarded.token("read")
    server = ENDPOINTS["server"]
    assert guarded.visit(server, token=token).status == 200
    guarded.engine.revoke_token(1)
    assert auth.KNOWN_S <= 1.0
    said = until(lambda: said if (said := guarded.visit(server, token=token)).status == 401 else None, 2.0)
    assert "revoked" in said.json["error"]["message"]


def test_an_expired_token_is_refused_without_another_look(guarded: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "KNOWN_S", 3600.0)
    token = guarded.token("read", expires_s=0.5)
    assert guarded.visit(ENDPOINTS["server"], token=token).status == 200
    until(lambda: guarded.visit(ENDPOINTS["server"], token=token).status == 401, 3.0)


@pytest.mark.parametrize("name", ["stream", "claim", "wait_for", "wait"])
def test_whoever_waits_is_shown_out_when_the_token_is_revoked(guarded: House, name: str) -> None:
    """A stream ends, and a claim that waits gets no job that comes later."""
    token = guarded.token("admin")
    job, pool, _ = guarded.jobs["own"]
    asked = {
        "stream": ("GET", f"/v1/stream?job={job}", None),
        "claim": ("POST", "/v1/jobs/claim?wait=20", {"queues": ["later"]}),
        "wait_for": ("POST", "/v1/jobs/wait", {"ids": [guarded.waiting["own"]], "timeout_s": 20}),
        "wait": ("POST", f"/v1/pools/{pool}/wait", {"queues": ["later"], "timeout_s": 20}),
    }[name]
    answers: list[Said] = []

    def ask() -> None:
        answers.append(guarded.ask(*asked, token=token))

    guarded.stays = True
    thread = Thread(target=ask)
    thread.start()
    hub = guarded.served.app._hub
    until(lambda: hub._waiters or hub._watched or hub._pulses, 5)
    guarded.engine.revoke_token(1)
    until(lambda: guarded.ask("GET", "/v1/server", token=token).status == 401, 3)
    (made,) = guarded.engine.enqueue([command(queue="later")])
    guarded.engine.cancel([guarded.waiting["own"]])
    thread.join(10)
    (said,) = answers
    if name == "stream":
        assert b"event: error" in said.body
        assert b"revoked" in said.body
    else:
        assert said.status == 401
    assert guarded.engine.job(made.id).state == "pending"


def test_a_token_that_was_made_a_moment_ago_is_known(guarded: House) -> None:
    assert guarded.visit(ENDPOINTS["server"], token=f"covey_77_{'A' * 43}").status == 401
    assert guarded.visit(ENDPOINTS["server"], token=guarded.token("read")).status == 200
