"""A server whose disk is full: its error is named as that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.errors import StoreError
from covey.open import open_engine


def test_a_server_whose_disk_is_full_is_named_as_that(postgres_queue: Callable[[], str]) -> None:
    """As the server reports it, by its code: to fill the disk of a server under test would stop all others."""
    engine = open_engine(postgres_queue())
    said = "raise exception using message = 'could not extend file \"base/1\": No space left', errcode = '53100'"
    try:
        with pytest.raises(StoreError, match=r"No space left; the server's disk is full: nothing was stored"):
            engine.store.raw(f"do $$ begin {said}; end $$")
        assert engine.status().health == "fine"
    finally:
        engine.close()
