"""Who has come in with a browser: signed cookies, links that let in once, and the mark that every form carries.

The key is in a file of its own. Nothing of a session is stored: it dies with its token, with its time or with the key.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
from base64 import urlsafe_b64encode
from hashlib import sha256

from msgspec import Struct

from .. import env
from ..errors import InvalidInput, StoreError

SESSION_S = 12 * 3600
ONCE_S = 60
OWNER = 0  # instead of a token's id: whoever may read the key is the queue's owner
KEY_BYTES = 32
_SESSION = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")
_ONCE = re.compile(r"([0-9]{1,18})\.([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")


class Session(Struct, frozen=True):
    token: int  # its id; OWNER: came by a link
    text: str  # the cookie


class Sessions:
    def __init__(self, key: bytes, database_id: str) -> None:
        self._key, self._queue = key, database_id
        self.cookie = f"covey_{database_id}"  # cookies ignore ports: two queues on one host must not meet
        self._used: dict[str, int] = {}

    def make(self, token: int, now: int) -> str:
        """The cookie of somebody who has shown that token."""
        said = f"{token}.{now // 1_000_000 + SESSION_S}.{os.urandom(8).hex()}"
        return f"{said}.{self.sign('session', said)}"

    def read(self, text: str, now: int) -> Session | None:
        """The session, if it is one of ours and not over."""
        found = _SESSION.fullmatch(text)
        if found is None or not self.is_signed("session", text.rpartition(".")[0], found[4]):
            return None
        return Session(int(found[1]), text) if int(found[2]) > now // 1_000_000 else None

    def once(self, now: int) -> str:
        """What lets somebody in as the owner, once, within a minute."""
        said = f"{now // 1_000_000 + ONCE_S}.{os.urandom(8).hex()}"
        return f"{said}.{self.sign('once', said)}"

    def use(self, text: str, now: int) -> bool:
        """Whether that lets in; from now on it does not."""
        found = _ONCE.fullmatch(text)
        at = now // 1_000_000
        self._used = {nonce: until for nonce, until in self._used.items() if until > at}
        if found is None or not self.is_signed("once", text.rpartition(".")[0], found[3]):
            return False
        if int(found[1]) <= at or found[2] in self._used:
            return False
        self._used[found[2]] = int(found[1])
        return True

    def csrf(self, session: str) -> str:
        """What a form of that session carries, and no other site can know."""
        return self.sign("form", session)

    def sign(self, what: str, said: str) -> str:
        mac = hmac.digest(self._key, "\n".join((what, self._queue, said)).encode(), sha256)
        return urlsafe_b64encode(mac).rstrip(b"=").decode()

    def is_signed(self, what: str, said: str, mac: str) -> bool:
        return hmac.compare_digest(self.sign(what, said).encode(), mac.encode())


def key_of(side: str, given: str | None = None) -> bytes:
    """The key in ``given``, else the one beside the queue, made if there is none; a new one where there is no place."""
    if given is None and not side:
        return env.new_secret()
    path = given or os.path.join(side, "session-key")
    try:
        with contextlib.suppress(FileExistsError):
            _make(path)
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise InvalidInput(f"{path}: others may read this key; chmod 600 it, or remove it for a new one")
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise StoreError(f"the key of sessions {path}: {(error.strerror or str(error)).lower()}") from None
    if len(key) < KEY_BYTES:
        raise InvalidInput(f"{path}: a key has {KEY_BYTES} bytes or more; remove it, and a new one is made")
    return key


def _make(path: str) -> None:
    """Whole or not at all: two servers that start together have the same."""
    part = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, env.new_secret())
        os.link(part, path)
    finally:
        os.close(descriptor)
        os.unlink(part)
