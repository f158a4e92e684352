"""Who ran a job, in one text."""

from __future__ import annotations

import pytest

from covey.core.label import parts, suffix


@pytest.mark.parametrize(
    ("worker", "pool", "host"),
    [("command-2", "box-17", "box"), ("a@b/c-1", "my pool @ home", "h"), ("w", "ü", "h.example.org")],
)
def test_what_is_put_together_comes_apart_again(worker: str, pool: str, host: str) -> None:
    assert parts(worker + suffix(pool, host)) == (worker, pool, host)


def test_a_name_that_would_take_it_apart_wrongly_is_changed() -> None:
    assert parts("w" + suffix("a\tb", "h\t")) == ("w", "a b", "h ")


def test_what_says_no_more_than_the_worker_says_that() -> None:
    assert parts("command-2") == ("command-2", None, None)
    assert parts(None) == parts("") == (None, None, None)
