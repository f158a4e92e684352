"""A question with a limit: it is given up in time on every store, and the connection is as good as before."""

from __future__ import annotations

import pytest

from covey.engine.engine import Engine
from covey.errors import TooLong

ENDLESS = {
    "sqlite": "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
    "postgres": "select pg_sleep(3600)",
}


def endless(engine: Engine) -> None:
    engine.store.raw(ENDLESS[engine.store.dialect.name])


def test_a_question_that_takes_too_long_is_given_up_in_one_clear_line(engine: Engine) -> None:
    with pytest.raises(TooLong) as caught, engine.store.dialect.within(0.2):
        endless(engine)
    assert str(caught.value).startswith("this took longer than 0.2 s, the limit for one question; narrow it")
    assert "\n" not in str(caught.value)
    assert engine.queues() == []


def test_the_limit_is_for_all_statements_of_a_question_together(engine: Engine) -> None:
    with engine.store.dialect.within(0.2), engine.store.snapshot():
        assert engine.store.ask("queues") == []
        with pytest.raises(TooLong):
            endless(engine)
    with engine.store.dialect.within(0.2):
        for _ in range(2):
            with pytest.raises(TooLong):
                endless(engine)
    assert engine.status().counts["pending"] == 0


def test_the_limit_ends_with_its_block(engine: Engine) -> None:
    """A second that a statement takes is no more than it may take when nobody has set a limit."""
    with engine.store.dialect.within(0.001):
        pass
    long = {
        "sqlite": ENDLESS["sqlite"].replace("from n)", "from n limit 3000000)"),
        "postgres": "select pg_sleep(0.2)",
    }[engine.store.dialect.name]
    assert len(engine.store.raw(long)) == 1
    with engine.store.snapshot():
        assert len(engine.store.raw(long)) == 1


def test_a_question_within_its_limit_is_answered(engine: Engine) -> None:
    with engine.store.dialect.within(600):
        assert engine.status().counts["pending"] == 0
        assert engine.queues() == []
