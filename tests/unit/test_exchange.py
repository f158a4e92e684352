"""What a pool tells its store in turns: also when it does not fit into one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.core.model import Output, Report
from covey.core.turn import Turn
from covey.engine.engine import Engine
from covey.errors import TooLarge
from covey.testing import until
from tests.kit import HandPool, command

from .test_stale_claims import turn_loop_of

LIMIT = 1000  # bytes of output in one turn


@pytest.fixture
def backend() -> str:
    return "file"


def size(turn: Turn) -> int:
    return sum(len(report.output.stdout) for report in turn.reports if report.output)


def test_reports_that_do_not_fit_into_one_turn_go_in_several_and_one_that_fits_into_none_has_failed(
    engine: Engine, connect: Callable[[], Engine], pool: HandPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage of the server, with much output meanwhile. All others arrive whole."""
    made = [each.id for each in engine.enqueue([command() for _ in range(40)])]
    claims = pool.claim(40)
    other = connect()
    take, sizes = other.turn, list[int]()

    def limited(turn: Turn) -> object:
        sizes.append(size(turn))
        if sizes[-1] > LIMIT:
            raise TooLarge("so many bytes, the limit is less")
        return take(turn)

    monkeypatch.setattr(other, "turn", limited)
    turn_loop = turn_loop_of(other, pool, lease_s=30)
    turn_loop._number = 100  # behind the turns that were taken by hand
    type = turn_loop._types.of("default")
    turn_loop._held = {claim.id: (claim.fence, "command", type) for claim in claims}
    turn_loop._load[type]["command"] = len(claims)
    outputs = [Output(b"x" * (LIMIT + 1 if n == 7 else LIMIT // 4)) for n in range(40)]
    turn_loop.report([
        Report(claim.id, claim.fence, "success", 1, 2, "w1", output=output)
        for claim, output in zip(claims, outputs, strict=True)
    ])  # fmt: skip
    turn_loop.start()
    try:
        until(lambda: not engine.status().counts.get("processing"), 10, "all have arrived")
    finally:
        turn_loop.close()
    dead = engine.job(made[7])
    assert (dead.state, dead.attempts) == ("dead", 1)
    assert dead.error == "what became of it is too large to be told (so many bytes, the limit is less)"
    rest = [id for id in made if id != made[7]]
    assert {engine.job(id).state for id in rest} == {"completed"}
    assert {len(engine.history(id)[0].stdout) for id in rest} == {LIMIT // 4}
    assert max(sizes) > LIMIT
    assert turn_loop._most is None
