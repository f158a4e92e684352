"""Engine.turns: several pools in one transaction. What comes of it is what the same turns, one by one, come to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from covey import env
from covey.core.model import Claim, Report
from covey.core.turn import Held, Reply, Turn
from covey.engine.engine import Engine
from covey.errors import CoveyError, InvalidInput, Refused
from covey.open import open_dialect
from covey.store import migrate
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool, after, check_queue, child, command, python_task
from tests.kit.faults import failpoint
from tests.kit.hand_pool import report

from .family import parent_of, states

BEHIND = True


@pytest.fixture
def pools(engine: Engine) -> list[HandPool]:
    return [HandPool(engine, name=f"pool-{n}") for n in range(4)]


def replies(answers: list[Reply | CoveyError]) -> list[Reply]:
    return [answer for answer in answers if isinstance(answer, Reply)]


def ids(answer: Reply | CoveyError) -> list[int]:
    assert isinstance(answer, Reply), answer
    return [claim.id for claim in answer.claims]


# ── together ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_claims_are_disjoint_and_in_order_of_the_turns(engine: Engine, pools: list[HandPool]) -> None:
    low = [made.id for made in engine.enqueue([command() for _ in range(6)])]
    high = [made.id for made in engine.enqueue([command(priority=5, queue="other") for _ in range(2)])]
    answers = engine.turns([pool.said(want=3, held=[]) for pool in pools])
    assert [ids(answer) for answer in answers] == [[*high, low[0]], low[1:4], low[4:], []]


def test_reports_of_all_are_written_and_places_filled(engine: Engine, pools: list[HandPool]) -> None:
    made = [each.id for each in engine.enqueue([python_task("t") for _ in range(8)])]
    claims = [pool.claim_one() for pool in pools]
    said = [report(claims[0], "success", result="1"), report(claims[1], "failure", error="x")]
    said += [report(claims[2], "taken_back"), report(claims[3], "abort", error="y")]
    answers = engine.turns([pool.said(each, want=1) for pool, each in zip(pools, said, strict=True)])
    # what the third one gave back comes to the third, because it is the oldest then
    assert [ids(answer) for answer in answers] == [[made[4]], [made[5]], [made[2]], [made[6]]]
    assert states(engine, *made[:4]) == ["completed", "failed", "processing", "dead"]
    assert engine.job(made[0]).result == 1


def test_a_limit_holds_across_the_turns_of_one_call(engine: Engine, pools: list[HandPool]) -> None:
    engine.set_queue("narrow", concurrency=3)
    engine.enqueue([command(queue="narrow") for _ in range(9)])
    answers = engine.turns([pool.said(want=2, held=[]) for pool in pools])
    assert [len(ids(answer)) for answer in answers] == [2, 1, 0, 0]
    first = replies(answers)[0].claims
    # one place is free again when the first has reported, and the second takes it
    ended = [pools[0].said(report(first[0], "success")), *(pool.said(want=2, held=None) for pool in pools[1:])]
    assert [len(ids(answer)) for answer in engine.turns(ended)] == [0, 1, 0, 0]


def test_a_serial_lane_belongs_to_one_of_them(engine: Engine, pools: list[HandPool]) -> None:
    engine.set_queue("line", serial=True)
    made = [each.id for each in engine.enqueue([command(queue="line") for _ in range(3)])]
    answers = engine.turns([pool.said(want=2, held=[]) for pool in pools])
    assert [ids(answer) for answer in answers] == [[made[0]], [], [], []]
    done = report(replies(answers)[0].claims[0], "success")
    following = [pools[1].said(want=1), pools[0].said(done, want=0), pools[2].said(want=5, held=[])]
    assert [ids(answer) for answer in engine.turns(following)] == [[], [], [made[1]]]


def test_a_later_turn_hears_of_what_an_earlier_one_has_cancelled(engine: Engine, pools: list[HandPool]) -> None:
    """One child fails and the other, of a later pool, is to be stopped; an earlier pool hears of it next time."""
    root, kids = parent_of(engine, pools[3], 3, on_error="cancel")
    claims = [pool.claim_one() for pool in pools[:3]]
    turns = [pools[0].said(held=[claims[0]]), pools[1].said(report(claims[1], "failure", error="x"))]
    early, _, late = replies(engine.turns([*turns, pools[2].said(held=[claims[2]])]))
    assert early.cancels == []
    assert late.cancels == [Held(claims[2].id, claims[2].fence)]
    assert states(engine, *kids) == ["cancelled", "dead", "cancelled"]
    both = engine.turns([pools[2].said(report(late.cancels[0], "gone")), pools[0].said(held=[claims[0]])])
    assert [reply.cancels for reply in replies(both)] == [[], [Held(claims[0].id, claims[0].fence)]]
    assert states(engine, root) == ["dead"]


def test_a_join_that_one_turn_opens_is_claimed_by_the_next(engine: Engine, pools: list[HandPool]) -> None:
    root, _ = parent_of(engine, pools[3], 2, joins=True)
    first, second = pools[0].claim(2)
    answers = engine.turns(
        [
            pools[1].said(want=1, held=[]),
            pools[0].said(report(first, "success"), report(second, "success", result="2")),
            pools[2].said(want=1, held=[]),
        ]
    )
    assert [ids(answer) for answer in answers] == [[], [], [root]]
    assert '"result":2' in (replies(answers)[2].claims[0].children or "").replace(" ", "")


def test_what_is_due_at_once_is_claimed_by_the_next(engine: Engine, pools: list[HandPool]) -> None:
    (made,) = engine.enqueue([command()])
    claim = pools[0].claim_one()
    turns = [pools[0].said(report(claim, "failure", error="x", after_s=0.0)), pools[1].said(want=1, held=[])]
    assert [ids(answer) for answer in engine.turns(turns)] == [[], [made.id]]


def test_what_a_pool_does_not_know_of_goes_to_the_next(engine: Engine, pools: list[HandPool]) -> None:
    made = [each.id for each in engine.enqueue([command(), command()])]
    kept, _ = pools[0].claim(2)
    answers = engine.turns([pools[0].said(held=[kept]), pools[1].said(want=5, held=[])])
    assert [ids(answer) for answer in answers] == [[], [made[1]]]
    assert engine.job(made[1]).attempts == 1


def test_the_last_of_several_that_drain_is_told_so_only_when_nobody_runs(engine: Engine, pools: list[HandPool]) -> None:
    engine.enqueue([command()])
    claim = pools[0].claim_one()
    turns = [pools[1].said(want=1, draining=True), pools[0].said(report(claim, "success"), want=1, draining=True)]
    turns.append(pools[2].said(want=1, draining=True))
    assert [reply.drained for reply in replies(engine.turns(turns))] == [False, True, True]


# ── refused ones ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_refused_turn_writes_nothing_and_hinders_nobody(engine: Engine, pools: list[HandPool]) -> None:
    made = [each.id for each in engine.enqueue([command() for _ in range(8)])]
    claims = [pool.claim_one() for pool in pools]
    pools[2].lose()
    said = [report(claim, "success") for claim in claims]
    stale, stranger, lost, good = pools
    answers = engine.turns(
        [
            stale.said(said[0], want=1, number=stale.number),
            stranger.said(said[1], want=1, database_id="another"),
            lost.said(said[2], want=1),
            good.said(said[3], want=1),
        ]
    )
    assert isinstance(answers[0], Refused)
    assert "came after turn 1" in str(answers[0])
    assert isinstance(answers[1], Refused)
    assert "belongs to database another" in str(answers[1])
    assert answers[2] == Reply([], [], [], lost=True)
    assert ids(answers[3]) == [made[2]]
    assert states(engine, *made) == ["processing", "processing", "processing", "completed", *["pending"] * 4]
    assert [engine.job(id).pool for id in made[:3]] == [stale.id, stranger.id, good.id]


def test_numbers_rise_for_each_pool_by_itself(engine: Engine, pools: list[HandPool]) -> None:
    engine.turns([pool.said(number=5 + n, held=[]) for n, pool in enumerate(pools)])
    answers = engine.turns([pool.said(number=6, held=[]) for pool in pools])
    assert [type(answer) for answer in answers] == [Reply, Refused, Refused, Refused]


def test_a_pool_that_is_named_twice_is_refused_whole(engine: Engine, pools: list[HandPool]) -> None:
    engine.enqueue([command()])
    with pytest.raises(InvalidInput, match="named twice"):
        engine.turns([pools[0].said(want=1), pools[1].said(want=1, held=[]), pools[0].said(want=1)])
    assert engine.status().counts["pending"] == 1


def test_no_turns_are_no_answers(engine: Engine) -> None:
    assert engine.turns([]) == []


# ── failures ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Broken(Engine):
    """Cannot apply one report: a bug that one pool meets."""

    bad = 0

    def _apply(self, turn: Turn, *rest: Any) -> int:
        done = super()._apply(turn, *rest)
        if any(each.id == self.bad for each in turn.reports):
            raise KeyError("a bug")
        return done


def test_one_turn_that_fails_spoils_none_of_the_others(engine: Engine, pools: list[HandPool]) -> None:
    made = [each.id for each in engine.enqueue([command() for _ in range(8)])]
    claims = [pool.claim_one() for pool in pools]
    engine = getattr(engine, "behind", engine)  # over HTTP: whoever is behind the server
    engine.__class__ = Broken
    engine.bad = claims[1].id  # type: ignore[attr-defined]
    answers = engine.turns([p.said(report(c, "success"), want=1) for p, c in zip(pools, claims, strict=True)])
    assert [type(answer) for answer in answers] == [Reply, CoveyError, Reply, Reply]
    assert str(answers[1]) == f"turn 2 of pool {pools[1].id} failed (KeyError: 'a bug')"
    assert states(engine, *made) == ["completed", "processing", *["completed"] * 2, *["processing"] * 3, "pending"]
    assert check_queue(engine) == []


@pytest.mark.parametrize("point", ["turn.before_begin", "store.before_commit"])
def test_when_the_transaction_fails_everybody_hears_of_it_and_nothing_is_written(
    engine: Engine, pools: list[HandPool], point: str
) -> None:
    made = [each.id for each in engine.enqueue([command() for _ in range(8)])]
    claims = [pool.claim_one() for pool in pools]
    turns = [p.said(report(c, "success"), want=1) for p, c in zip(pools, claims, strict=True)]
    with failpoint(point, "raise"):
        answers = engine.turns(turns)
    assert [type(answer) for answer in answers] == [CoveyError] * 4
    assert states(engine, *made) == ["processing"] * 4 + ["pending"] * 4
    assert [len(reply.claims) for reply in replies(engine.turns(turns))] == [1] * 4  # the same numbers: none was taken


@pytest.mark.parametrize("point", ["turn.after_reports", "turn.after_claim", "turn.before_commit"])
def test_a_group_that_fails_inside_has_done_nothing(engine: Engine, pools: list[HandPool], point: str) -> None:
    made = [each.id for each in engine.enqueue([command() for _ in range(8)])]
    claims = [pool.claim_one() for pool in pools]
    turns = [p.said(report(c, "success"), want=1) for p, c in zip(pools, claims, strict=True)]
    with failpoint(point, "raise"):
        assert not replies(engine.turns(turns))
    assert states(engine, *made) == ["processing"] * 4 + ["pending"] * 4


# ── idle ones ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_of_idle_turns_writes_nothing(
    engine: Engine, pools: list[HandPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.enqueue([command(queue="elsewhere"), command(queue="held-up"), command(delay_s=50)])
    engine.pause("held-up")
    before = engine.pools()

    def begin(**options: object) -> Any:
        raise AssertionError("an idle turn began a transaction")

    monkeypatch.setattr(engine.store, "transaction", begin)
    wants = [replace(pool.said(want=4).wants[0], queues=("held-up", "default")) for pool in pools]
    answers = engine.turns([pool.said(wants=[want]) for pool, want in zip(pools, wants, strict=True)])
    assert [(reply.claims, reply.next_due_at) for reply in replies(answers)] == [([], before_due(engine))] * 4
    assert engine.pools() == before


def before_due(engine: Engine) -> int:
    return int(engine.store.value("next_due"))


def test_idle_ones_for_which_there_is_something_take_it(engine: Engine, pools: list[HandPool]) -> None:
    made = [each.id for each in engine.enqueue([command(), command(queue="other")])]
    engine.stop_pools([pools[3].id])
    answers = replies(engine.turns([pool.said(want=1) for pool in pools]))
    assert [[claim.id for claim in reply.claims] for reply in answers] == [[made[0]], [made[1]], [], []]
    assert [reply.stop for reply in answers] == [False, False, False, True]


# ── the same as one by one ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def twin(clock: FakeClock) -> Iterator[Engine]:
    """Another queue with the same clock, to which the same happens, turn by turn."""
    dialect = open_dialect(f"memory:{os.urandom(6).hex()}")
    migrate.migrate(dialect, database_id=env.new_database_id(), now=clock())
    engine = Engine(Store(dialect), clock=clock, rng=Random(0))
    yield engine
    engine.close()


class Story:
    """Random turns of a few pools, told to one engine in groups and to its twin one by one."""

    def __init__(self, grouped: Engine, single: Engine, clock: FakeClock, dice: Random) -> None:
        self.grouped, self.single, self.clock, self.dice = grouped, single, clock, dice
        self.pools = [HandPool(grouped, name=f"pool-{n}") for n in range(4)]
        assert [HandPool(single, name=f"pool-{n}").id for n in range(4)] == [pool.id for pool in self.pools]
        self.holds: dict[int, dict[int, Claim]] = {pool.id: {} for pool in self.pools}
        self.claimed = 0
        for engine in (grouped, single):
            engine.set_queue("line", serial=True)
            engine.set_queue("narrow", concurrency=2)
            engine.set_queue("deep", max_depth=3)

    def step(self) -> None:
        dice = self.dice
        specs = [self.a_spec() for _ in range(dice.randrange(4))]
        assert self.grouped.enqueue(specs) == self.single.enqueue(specs)
        if dice.random() < 0.2 and (known := [id for held in self.holds.values() for id in held]):
            id = dice.choice(known)
            assert told(lambda: self.grouped.cancel([id])) == told(lambda: self.single.cancel([id]))
        turns = [self.a_turn(pool) for pool in dice.sample(self.pools, dice.randrange(1, 5))]
        answers = self.grouped.turns(turns)
        expected = [
            told(lambda turn=turn: self.single.turn(replace(turn, database_id=self.single.database_id)))
            for turn in turns
        ]
        assert [told(lambda answer=answer: answer) for answer in answers] == expected
        for turn, answer in zip(turns, answers, strict=True):
            self.remember(turn, answer)
        assert self.table(self.grouped) == self.table(self.single)
        if dice.random() < 0.5:
            self.clock.advance(dice.choice((0.5, 2, 5)))

    def a_spec(self) -> Any:
        dice = self.dice
        made = dice.choice((command, python_task))
        queue = dice.choice(("default", "other", "line", "narrow", "deep"))
        fields: dict[str, Any] = {"queue": queue, "priority": dice.randrange(3), "max_attempts": dice.randrange(1, 4)}
        fields |= {"joins": dice.random() < 0.3, "on_error": dice.choice(("wait", "cancel", "collect"))}
        fields |= {"child_mode": dice.choice((None, "serial"))}
        if dice.random() < 0.1:
            fields["delay_s"] = dice.choice((1, 3))
        if dice.random() < 0.1:
            fields["tree_timeout_s"] = dice.choice((2.0, 20.0))
        return made(**fields)

    def a_turn(self, pool: HandPool) -> Turn:
        dice, mine = self.dice, self.holds[pool.id]
        if dice.random() < 0.2:
            return pool.said(want=dice.randrange(5))  # idle
        done = [claim for claim in mine.values() if dice.random() < 0.5]
        kept = [claim for claim in mine.values() if claim not in done and dice.random() < 0.95]
        return pool.said(
            *(self.a_report(claim) for claim in done),
            want=dice.randrange(5),
            held=kept,
            draining=dice.random() < 0.1,
            number=pool.number if dice.random() < 0.05 else pool.number + 1,
        )

    def a_report(self, claim: Claim) -> Report:
        dice = self.dice
        outcome = dice.choice(("success", "success", "success", "failure", "taken_back", "abort", "snooze"))
        fields: dict[str, Any] = {"after_s": 0.0 if dice.random() < 0.3 else None}
        if outcome == "success" and claim.phase == "run" and dice.random() < 0.4:
            fields["spawned"] = [child(max_attempts=1, queue=dice.choice((None, "other", "line"))) for _ in range(2)]
            if dice.random() < 0.2:
                fields["spawned"].append(after("uncle", queue="other"))
        return report(claim, outcome, error="x" if outcome in ("failure", "abort") else None, **fields)

    def remember(self, turn: Turn, answer: Reply | CoveyError) -> None:
        if not isinstance(answer, Reply):
            return
        mine = self.holds[turn.pool]
        kept = set(mine) if turn.held is None else {held.id for held in turn.held}
        for id in [id for id in mine if id not in kept]:
            del mine[id]
        mine.update((claim.id, claim) for claim in answer.claims)
        self.claimed += len(answer.claims)

    @staticmethod
    def table(engine: Engine) -> list[Any]:
        columns = "id, queue, state, fence, attempts, pool, phase, run_at, seq, lane, children_unfinished, error"
        jobs = engine.store.raw(f"select {columns} from {{jobs}} order by id")
        pools = engine.store.raw("select id, turn_no, beat, beat_at from {pools} order by id")
        return [jobs, pools, engine.store.raw("select name, serial_root from {queues} order by name")]


def told(ask: Callable[[], Any]) -> Any:
    """An answer without what may differ: the order of cancels. A refusal is an answer too."""
    try:
        answer = ask()
    except CoveyError as refused:
        answer = refused
    if isinstance(answer, CoveyError):
        return type(answer).__name__, str(answer)
    if isinstance(answer, Reply):
        answer = replace(answer, cancels=sorted(answer.cancels, key=lambda held: held.id))
    return to_builtins(answer)


def test_any_group_comes_to_the_same_as_its_turns_one_by_one(
    engine: Engine, twin: Engine, clock: FakeClock, proof: Callable[[int, int], int]
) -> None:
    story = Story(engine, twin, clock, Random(proof(7, 8)))
    for _ in range(proof(60, 2000)):
        story.step()
    assert story.claimed > proof(50, 1000)
    assert check_queue(engine) == []
