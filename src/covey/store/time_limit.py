"""For how long a question may take, where others wait for the same threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from ..errors import TooLong


class Limit(Struct, frozen=True):
    seconds: float
    until: float  # by the monotonic clock

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def refusal(self) -> TooLong:
        narrow = "narrow it (a queue, a batch, fewer jobs), or ask where the database is"
        return TooLong(f"this took longer than {self.seconds:g} s, the limit for one question; {narrow}")

    def setting(self) -> str:
        """What is left of it, for PostgreSQL and one transaction: the session may be somebody else's next."""
        if self.is_over:
            raise self.refusal()
        return f"set_config('statement_timeout', '{int((self.until - time.monotonic()) * 1000) + 1}', true)"


def with_limit(settings: str, limit: Limit | None) -> str:
    return settings if limit is None else f"{settings}, {limit.setting()}"


class Limited(Protocol):
    limit: Limit | None


@contextmanager
def limited(dialect: Limited, seconds: float) -> Iterator[None]:
    """Within the block the dialect has that limit."""
    dialect.limit = Limit(seconds, time.monotonic() + seconds)
    try:
        yield
    finally:
        dialect.limit = None
