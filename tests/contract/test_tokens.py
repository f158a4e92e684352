"""Tokens: made once, shown once, revoked for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from covey.core.tokens import parse, verdict
from covey.core.view import rfc3339
from covey.engine.engine import Engine
from covey.errors import InvalidInput, NotFound, Refused
from covey.testing import FakeClock

from ..postgres.meeting import together

BEHIND = True


def lets_in(engine: Engine, text: str) -> str:
    """What a server would say to whoever shows that text."""
    found = parse(text)
    assert found is not None
    row = {row.id: row for row in engine.token_rows()}.get(found[0])
    return verdict(row, found[1], engine.clock())


def test_a_token_lets_in_whoever_has_its_text_and_shows_what_was_asked(engine: Engine, clock: FakeClock) -> None:
    view, text = engine.create_token("ci", "worker", queues=["images", "mail", "images"], expires_s=60)
    assert text.startswith(f"covey_{view.id}_")
    assert (view.name, view.role, view.queues, view.state) == ("ci", "worker", ["images", "mail"], "valid")
    assert (view.created_at, view.expires_at) == (rfc3339(clock()), rfc3339(clock() + 60_000_000))
    assert engine.tokens() == [view]
    assert [row.queues for row in engine.token_rows()] == [("images", "mail")]
    assert lets_in(engine, text) == "ok"
    clock.advance(60)
    assert lets_in(engine, text) == "expired"
    assert [each.state for each in engine.tokens()] == ["expired"]


def test_each_token_has_a_secret_of_its_own(engine: Engine) -> None:
    (first, one), (second, other) = engine.create_token("a", "read"), engine.create_token("b", "read")
    assert (second.id > first.id, one[-43:] != other[-43:]) == (True, True)
    assert lets_in(engine, f"covey_{second.id}_{one[-43:]}") == "wrong"


def test_the_secret_is_stored_nowhere(engine: Engine) -> None:
    _, text = engine.create_token("ci", "admin")
    tables = engine.store.dialect.tables()
    stored = repr([engine.store.raw(f"select * from {{{table}}}") for table in tables])
    assert "'ci'" in stored
    assert text[-43:] not in stored


def test_a_revoked_token_lets_nobody_in_and_revoking_twice_is_harmless(engine: Engine, clock: FakeClock) -> None:
    view, text = engine.create_token("ci", "client")
    _, other = engine.create_token("other", "client")
    clock.advance(1)
    revoked = engine.revoke_token("ci")
    assert (revoked.id, revoked.state, revoked.revoked_at) == (view.id, "revoked", rfc3339(clock()))
    assert (lets_in(engine, text), lets_in(engine, other)) == ("revoked", "ok")
    clock.advance(1)
    assert engine.revoke_token(view.id) == engine.revoke_token(str(view.id)) == revoked
    assert [each.state for each in engine.tokens()] == ["revoked", "valid"]


def test_events_say_who_was_made_and_who_was_revoked_by_name_alone(engine: Engine) -> None:
    _, text = engine.create_token("ci", "client")
    engine.revoke_token("ci")
    engine.revoke_token("ci")
    assert [(event.kind, event.text) for event in engine.events()] == [("token_revoked", "ci"), ("token_created", "ci")]
    assert text[-43:] not in repr(engine.events())


@pytest.mark.parametrize("ref", ["nobody", 99, "99", "9" * 30, "", "a b"])
def test_a_token_that_is_not_there_cannot_be_revoked(engine: Engine, ref: str | int) -> None:
    engine.create_token("ci", "client")
    with pytest.raises(NotFound, match="covey token list"):
        engine.revoke_token(ref)
    assert [each.state for each in engine.tokens()] == ["valid"]


def test_a_name_is_never_given_twice(engine: Engine) -> None:
    engine.create_token("ci", "client")
    with pytest.raises(Refused, match="'ci'"):
        engine.create_token("ci", "read")
    engine.revoke_token("ci")
    with pytest.raises(Refused, match="'ci'"):
        engine.create_token("ci", "read")
    assert len(engine.tokens()) == 1


def test_of_several_who_make_the_same_name_at_once_one_has_it(connect: Callable[[], Engine]) -> None:
    engines = [connect() for _ in range(4)]
    answers = together(*(lambda engine=engine: engine.create_token("ci", "client") for engine in engines))
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    made = [answer for answer in answers if isinstance(answer, tuple)]
    assert (len(refused), len(made)) == (3, 1), answers
    assert lets_in(engines[0], made[0][1]) == "ok"


BAD: dict[str, dict[str, Any]] = {
    "a name of digits": {"name": "12"},
    "a role that nobody has": {"role": "root"},
    "a queue that cannot be": {"queues": ["a b"]},
    "no queue at all": {"queues": []},
    "an end in the past": {"expires_s": -5},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_in_one_line_and_nothing_is_stored(engine: Engine, what: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        engine.create_token(**{"name": "ci", "role": "client", **BAD[what]})
    assert "\n" not in str(refusal.value)
    assert (engine.tokens(), engine.events()) == ([], [])
