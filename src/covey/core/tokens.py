"""Tokens of the HTTP server: who comes, what they may, and whether that still holds.

A token is `covey_<id>_<secret>`. The secret is 32 bytes of chance and shown once; only its digest is kept.
"""

from __future__ import annotations

import hmac
import math
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, get_args

from msgspec import Struct

from ..errors import InvalidInput
from .check import NAME, check_queue
from .machine import SECOND
from .view import rfc3339

Role = Literal["read", "client", "worker", "admin"]
Verdict = Literal["ok", "wrong", "expired", "revoked"]
State = Literal["valid", "expired", "revoked"]

ROLES: tuple[Role, ...] = get_args(Role)
# What each role may besides what is named after it. A worker reads so that its pool can see its queues.
INCLUDED: dict[Role, frozenset[Role]] = {
    "read": frozenset(),
    "client": frozenset({"read"}),
    "worker": frozenset({"read"}),
    "admin": frozenset(ROLES),
}
LONGEST_S = 1e10
_TEXT = re.compile(r"covey_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
_NOBODY = "0" * 64  # what a secret is compared with when there is no such token


class TokenRow(Struct, frozen=True):
    """A token as it is stored. ``queues``: the only ones it is for, None = every queue."""

    id: int
    name: str
    role: Role
    queues: tuple[str, ...] | None
    digest: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None

    def __repr__(self) -> str:
        return f"TokenRow({self.id}, {self.name!r}, {self.role!r})"


class TokenView(Struct, kw_only=True, frozen=True):
    """A token as people see it: nothing of its secret."""

    id: int
    name: str
    role: Role
    queues: list[str] | None
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    state: State


def may(role: Role, needed: Role) -> bool:
    """Whether a token of that role is enough for what asks for ``needed``."""
    return needed == role or needed in INCLUDED[role]


# ── the text ────────────────────────────────────────────────────────────────────────────────────────────────────────


def secret_of(chance: bytes) -> str:
    """32 bytes as 43 characters that need no quoting anywhere."""
    if len(chance) != 32:
        raise ValueError(f"a secret is made from 32 bytes, not {len(chance)}")
    return urlsafe_b64encode(chance).rstrip(b"=").decode("ascii")


def token_text(id: int, chance: bytes) -> str:
    """The whole token, as it is shown once."""
    return f"covey_{id}_{secret_of(chance)}"


def parse(text: str) -> tuple[int, str] | None:
    """(id, secret), or None if that is no token of ours."""
    found = _TEXT.fullmatch(text)
    return (int(found[1]), found[2]) if found else None


def digest(secret: str) -> str:
    """What is kept of a secret. Plain SHA-256: 256 bits of chance cannot be guessed, however fast one tries."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


# ── what holds ──────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(row: TokenRow | None, secret: str, now: int) -> Verdict:
    """Whether whoever has this secret may come in. It takes as long for a token that does not exist.

    Only who has the secret hears that the token has expired or was revoked.
    """
    matches = hmac.compare_digest(digest(secret), _NOBODY if row is None else row.digest)
    if row is None or not matches:
        return "wrong"
    state = state_of(row, now)
    return "ok" if state == "valid" else state


def state_of(row: TokenRow, now: int) -> State:
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "valid"


def view_of(row: TokenRow, now: int) -> TokenView:
    return TokenView(
        id=row.id,
        name=row.name,
        role=row.role,
        queues=None if row.queues is None else list(row.queues),
        created_at=rfc3339(row.created_at),
        expires_at=rfc3339(row.expires_at),
        revoked_at=rfc3339(row.revoked_at),
        state=state_of(row, now),
    )


# ── what may be asked for ───────────────────────────────────────────────────────────────────────────────────────────


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput(f"token name {name!r}: use letters, digits and _ . : @ / + -, at most 200")
    if name.isdigit():
        raise InvalidInput(f"token name {name!r}: digits only would be taken for an id; put a letter into it")


def check_role(role: str) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise InvalidInput(f"role {role!r}: one of {', '.join(ROLES)}")


def check_queues(queues: Sequence[str] | None, role: Role) -> tuple[str, ...] | None:
    """Each queue once, in order; None for every queue."""
    if queues is None:
        return None
    if isinstance(queues, str) or not queues:
        raise InvalidInput(f"queues {queues!r}: a list with at least one name, or none at all for every queue")
    if role == "admin":
        raise InvalidInput("an admin token is for every queue; name no queues, or choose another role")
    return tuple(dict.fromkeys(check_queue(queue) for queue in queues))


def check_expiry(expires_s: float | None, now: int) -> int | None:
    """When it expires, if ever."""
    if expires_s is None:
        return None
    if isinstance(expires_s, bool) or not 0 < expires_s < LONGEST_S:
        raise InvalidInput(f"expires {expires_s!r}: a number of seconds above 0, such as 30 days")
    return now + math.ceil(expires_s * SECOND)
