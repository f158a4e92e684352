"""Tests that run much and watch nothing: the runner must say so (`make mutation TESTS=tests/mutation/useless.py`)."""

from __future__ import annotations

import contextlib

from covey.core import codec, objects, times, tree
from covey.open import open_engine
from tests.kit import HandPool, child, command


def test_everything_runs_and_nobody_looks() -> None:
    engine = open_engine("memory:useless")
    with contextlib.suppress(Exception):
        pool = HandPool(engine)
        engine.enqueue([command(key="k"), command(), command(delay_s=1)])
        first, second = pool.claim(2)
        pool.spawn(first, child(), child())
        pool.fail(second)
        engine.cancel([first.id])
        engine.retry([first.id])
        engine.status()
        engine.why(first.id)
    with contextlib.suppress(Exception):
        codec.encode({"a": [1, 0.5, "ä"]}, what="v")
        objects.spec_of({"command": "ls", "delay": "2h"}, settings=engine.settings(), defaults={})
        times.moment("1970-01-01T00:00:00Z", "at")
        tree.unblocks([("ok", 0)])
    engine.close()
