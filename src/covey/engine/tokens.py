"""Tokens: made, listed, revoked. What they allow is the HTTP server's to enforce."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..core import tokens
from ..core.tokens import TokenRow, TokenView
from ..env import failpoint, new_secret
from ..errors import NotFound, Refused
from ..store.store import Store
from .again import repeated
from .sealing import writing


class Tokens:
    """The part of the engine that knows who may come in over HTTP."""

    store: Store
    clock: Callable[[], int]

    @repeated
    def create_token(
        self, name: str, role: str, *, queues: Sequence[str] | None = None, expires_s: float | None = None
    ) -> tuple[TokenView, str]:
        """There is a token of that name. Its text is in the answer and nowhere else."""
        tokens.check_name(name)
        checked = tokens.check_role(role)
        limited = tokens.check_queues(queues, checked)
        chance = new_secret()
        with writing(self.store):
            now = self.clock()
            expires_at = tokens.check_expiry(expires_s, now)
            if self.store.value("id_of_token", name=name) is not None:
                raise Refused(f"there is or was a token {name!r} already; choose another name")
            (id,) = self.store.dialect.take_ids("tokens", 1)
            self.store.ask(
                "insert_token",
                id=id,
                name=name,
                role=checked,
                queues=None if limited is None else json.dumps(limited),
                digest=tokens.digest(tokens.secret_of(chance)),
                now=now,
                expires_at=expires_at,
            )
            self.store.event("token_created", now=now, text=name)
            view = tokens.view_of(self._token(id), now)
            failpoint("token.before_commit")
        return view, tokens.token_text(id, chance)

    def tokens(self) -> list[TokenView]:
        """All that were ever made, oldest first."""
        now = self.clock()
        return [tokens.view_of(row, now) for row in self.token_rows()]

    def token_rows(self) -> list[TokenRow]:
        """The same with their digests, for whoever lets people in."""
        return [_row(found) for found in self.store.ask("tokens")]

    @repeated
    def revoke_token(self, ref: str | int) -> TokenView:
        """Nobody comes in with that token any more. Who asks twice gets the same answer."""
        with writing(self.store):
            now = self.clock()
            row = self._token(ref)
            if self.store.ask("revoke_token", id=row.id, now=now):
                self.store.event("token_revoked", now=now, text=row.name)
            view = tokens.view_of(self._token(row.id), now)
            failpoint("revoke.before_commit")
        return view

    def _token(self, ref: str | int) -> TokenRow:
        """By its id or its name."""
        text = str(ref)
        id = int(text) if text.isdecimal() and len(text) < 19 else self.store.value("id_of_token", name=text)
        found = self.store.ask("token", id=id) if id is not None else []
        if not found:
            raise NotFound(f"no token {text!r}; `covey token list` shows what there is")
        return _row(found[0])


def _row(found: tuple[Any, ...]) -> TokenRow:
    id, name, role, queues, *rest = found
    return TokenRow(id, name, role, None if queues is None else tuple(json.loads(queues)), *rest)
