"""Client.output and Source.show_output: what a running job writes, wherever it runs."""

from __future__ import annotations

import json

import pytest

from covey.engine.engine import Engine
from covey.errors import LeaseLost, NotFound
from tests.kit import HandPool, command


def test_what_is_shown_of_a_run_can_be_followed_from_any_place(engine: Engine, pool: HandPool, backend: str) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    assert engine.output(claim.id).stdout == b""
    engine.show_output(pool.id, claim.id, claim.fence, "one\n", "")
    engine.show_output(pool.id, claim.id, claim.fence, "zwölf\n", "oops\n")
    found = engine.output(claim.id, fence=claim.fence)
    if backend == "memory":  # a queue in memory keeps no files
        assert (found.stdout, found.stderr) == (b"", b"")
        return
    assert (found.stdout, found.stderr) == ("one\nzwölf\n".encode(), b"oops\n")
    rest = engine.output(claim.id, out=4, err=found.err)
    assert (rest.stdout, rest.stderr, rest.out) == ("zwölf\n".encode(), b"", found.out)


def test_only_who_has_the_run_may_show_something_of_it(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    other = HandPool(engine)
    for wrong in ((other.id, claim.id, claim.fence), (pool.id, claim.id, claim.fence + 1)):
        with pytest.raises(LeaseLost):
            engine.show_output(*wrong, "stranger", "")
    with pytest.raises(NotFound):
        engine.show_output(pool.id, 999, 1, "stranger", "")
    pool.succeed(claim)
    with pytest.raises(LeaseLost):
        engine.show_output(pool.id, claim.id, claim.fence, "late", "")
    assert engine.output(claim.id, fence=claim.fence).stdout == b""


def test_what_a_run_says_of_itself_is_seen_while_it_runs(engine: Engine, pool: HandPool, backend: str) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    for info in ('{"rows": 1, "step": "a long one"}', '{"rows": 2}'):
        engine.show_output(pool.id, claim.id, claim.fence, "", "", info=info)
        found = engine.job(claim.id).info
        assert found == (None if backend == "memory" else json.loads(info))
    engine.show_output(pool.id, claim.id, claim.fence, "", "", info="{half of it")
    assert engine.job(claim.id).info == found
    pool.succeed(claim)
    assert engine.job(claim.id).info is None  # it is as its report says


def test_a_place_behind_the_end_means_all_of_it(engine: Engine, pool: HandPool, backend: str) -> None:
    if backend == "memory":
        return
    engine.enqueue([command()])
    claim = pool.claim_one()
    engine.show_output(pool.id, claim.id, claim.fence, "12345", "")
    for place, told in ((0, b"12345"), (4, b"5"), (5, b""), (6, b"12345")):
        found = engine.output(claim.id, out=place)
        assert (found.stdout, found.out, found.fence) == (told, 5, claim.fence)
