"""Tokens: their text, what each role may, and whom they let in."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from covey.core import tokens
from covey.core.tokens import ROLES, Role, TokenRow, digest, may, parse, token_text, verdict, view_of
from covey.errors import InvalidInput

CHANCE = bytes(range(200, 232))
SECRET = tokens.secret_of(CHANCE)


def row(**fields: Any) -> TokenRow:
    usual: dict[str, Any] = {
        "id": 7,
        "name": "ci",
        "role": "client",
        "queues": None,
        "digest": digest(SECRET),
        "created_at": 0,
        "expires_at": None,
        "revoked_at": None,
    }
    return TokenRow(**{**usual, **fields})


ALLOWED: dict[Role, set[Role]] = {
    "read": {"read"},
    "client": {"read", "client"},
    "worker": {"read", "worker"},
    "admin": {"read", "client", "worker", "admin"},
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("needed", ROLES)
def test_a_role_may_what_the_table_says_and_nothing_else(role: Role, needed: Role) -> None:
    assert may(role, needed) == (needed in ALLOWED[role])


def test_a_text_is_read_back_as_it_was_made() -> None:
    text = token_text(12, CHANCE)
    assert (text, len(SECRET)) == (f"covey_12_{SECRET}", 43)
    assert parse(text) == (12, SECRET)
    assert "_" in tokens.secret_of(b"\xff" * 32)  # which separates nothing there
    assert parse(token_text(1, b"\xff" * 32)) == (1, "_" * 42 + "8")


@pytest.mark.parametrize(
    "text",
    [
        *("", "covey", "covey_1_", f"covey_{SECRET}", f"covey__{SECRET}", f"covey_x_{SECRET}", f"covey_-1_{SECRET}"),
        *(
            f"covey_01_{SECRET}",
            f"covey_0_{SECRET}",
            f"covey_1_{SECRET}x",
            f"covey_1_{SECRET[:-1]}",
            f"Covey_1_{SECRET}",
        ),
        *(f" covey_1_{SECRET}", f"covey_1_{SECRET}\n", f"covey_١_{SECRET}", f"covey_{'9' * 19}_{SECRET}"),
        f"covey_1_{'é' * 43}",
    ],
)
def test_what_is_no_token_is_not_taken_for_one(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_secret_is_never_shorter_than_it_should_be(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        token_text(1, bytes(size))


def test_a_token_holds_until_it_expires_or_is_revoked() -> None:
    assert verdict(row(), SECRET, 10) == "ok"
    assert verdict(row(expires_at=10), SECRET, 9) == "ok"
    assert verdict(row(expires_at=10), SECRET, 10) == "expired"
    assert verdict(row(revoked_at=5), SECRET, 4) == "revoked"
    assert verdict(row(revoked_at=5, expires_at=1), SECRET, 10) == "revoked"


@pytest.mark.parametrize("fields", [{}, {"expires_at": 1}, {"revoked_at": 1}])
def test_who_lacks_the_secret_learns_nothing_of_the_token(fields: dict[str, int]) -> None:
    assert verdict(row(**fields), tokens.secret_of(bytes(32)), 10) == "wrong"
    assert verdict(row(**fields), digest(SECRET), 10) == "wrong"  # the stored digest is no way in
    assert verdict(None, SECRET, 10) == "wrong"
    assert verdict(None, "\udfff", 10) == "wrong"


def test_secrets_are_compared_in_constant_time_also_where_there_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert verdict(None, SECRET, 0) == "wrong"
    assert verdict(row(), "x" * 43, 0) == "wrong"
    assert verdict(row(), SECRET, 0) == "ok"
    assert [len(one) for pair in compared for one in pair] == [64] * 6


def test_what_people_see_has_neither_digest_nor_secret() -> None:
    view = view_of(row(queues=("a", "b"), expires_at=1_000_000), 2_000_000)
    assert (view.id, view.name, view.role, view.queues, view.state) == (7, "ci", "client", ["a", "b"], "expired")
    assert (view.created_at, view.expires_at, view.revoked_at) == (
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:01.000Z",
        None,
    )
    assert digest(SECRET) not in repr(view)
    assert digest(SECRET) not in repr(row())
    assert "digest" not in view.__struct_fields__


BAD: dict[str, tuple[Any, ...]] = {
    "an empty name": (tokens.check_name, ""),
    "a name of digits": (tokens.check_name, "123"),
    "a name with a space": (tokens.check_name, "a b"),
    "a name with a line end": (tokens.check_name, "a\n"),
    "a name that is too long": (tokens.check_name, "n" * 201),
    "a role that nobody has": (tokens.check_role, "root"),
    "a role in capitals": (tokens.check_role, "Admin"),
    "no queue at all": (tokens.check_queues, [], "client"),
    "one queue that is no list": (tokens.check_queues, "office", "client"),
    "a queue that cannot be": (tokens.check_queues, ["a", "b c"], "client"),
    "an admin of some queues": (tokens.check_queues, ["a"], "admin"),
    "an end that is now": (tokens.check_expiry, 0, 1),
    "an end in the past": (tokens.check_expiry, -1.0, 1),
    "an end that is no number": (tokens.check_expiry, float("nan"), 1),
    "an end that never comes": (tokens.check_expiry, float("inf"), 1),
    "an end that is a flag": (tokens.check_expiry, True, 1),
}


@pytest.mark.parametrize("what", BAD)
def test_what_makes_no_sense_is_refused_in_one_line(what: str) -> None:
    check, *given = BAD[what]
    with pytest.raises(InvalidInput) as refusal:
        check(*given)
    assert "\n" not in str(refusal.value)


def test_a_queue_that_is_named_twice_counts_once() -> None:
    assert tokens.check_queues(["b", "a", "b"], "worker") == ("b", "a")
    assert tokens.check_queues(None, "admin") is None
