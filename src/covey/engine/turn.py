"""Turns of pools: results in, claims out, one transaction for one pool or for several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from random import Random

from ..core import clocks
from ..core.model import Claim, Report
from ..core.turn import Capacity, Held, Reply, Turn
from ..env import failpoint
from ..errors import CoveyError, InvalidInput, Refused, Undone
from ..store.ready import Sought, WholeTurn
from ..store.store import Store
from ..store.turn_state import TurnState
from . import duties, flights, sealing
from .again import repeated
from .claims import Claims, most_of
from .pools import STILL_S
from .reports import Reports, plain_only
from .sealing import writing
from .ticks import Ticks
from .trees import Trees
from .turn_steps import Common, TurnSteps, is_drained, is_idle
from .work_bell import WorkBell

USUAL = 1_000_000  # µs; after one message was not enough, turns with reports are taken as always for so long

Answer = Reply | CoveyError


class Spoiled(Exception):
    """One of several turns failed, and with it their transaction."""


class Turns:
    """What pools do again and again."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        rng: Random,
        database_id: str,
        reports: Reports,
        bell: WorkBell,
        ticks: Ticks,
    ) -> None:
        self.store = store
        self.clock = clock
        self.rng = rng
        self.database_id = database_id
        self._reports = reports
        self._bell = bell
        self._ticks = ticks
        self._housekeeping = duties.Housekeeping()
        self._usual_until = 0

    def turn(self, turn: Turn) -> Reply:
        """Reports are written, free places are filled, the beat is shown: one transaction. An idle turn only reads."""
        self._refuse_stranger(turn)
        # Where a transaction keeps nobody waiting, an idle turn looks and claims in one.
        if is_idle(turn) and self.store.keeps_others_waiting and (seen := self._peek([turn])):
            return _reply(seen[turn.pool])
        failpoint("turn.before_begin")
        if self.store.whole_turns() and (answer := self._take_whole(turn)):
            return _reply(answer)
        return _reply(self._take([turn])[0])

    def turns(self, turns: Sequence[Turn]) -> list[Answer]:
        """The turns of several pools were taken in one transaction, in this order; so are the answers.

        A turn that is refused or fails has its exception for an answer and has written nothing; the others are none
        the worse. Unknown is everybody's answer. If all are idle, those for which there is nothing only read.
        """
        pools = [turn.pool for turn in turns]
        if len(set(pools)) < len(pools):
            raise InvalidInput(f"pools {pools}: one is named twice; a pool's next turn comes after its last answer")
        answers: dict[int, Answer] = {}
        for turn in turns:
            try:
                self._refuse_stranger(turn)
            except Refused as refused:
                answers[turn.pool] = refused
        self._answer([turn for turn in turns if turn.pool not in answers], answers)
        return [answers[pool] for pool in pools]

    def _answer(self, turns: Sequence[Turn], answers: dict[int, Answer]) -> None:
        try:
            if all(map(is_idle, turns)):
                answers |= self._peek(turns)
                turns = [turn for turn in turns if turn.pool not in answers]
            if turns:
                failpoint("turn.before_begin")
                answers |= zip((turn.pool for turn in turns), self._take_all(turns), strict=True)
        except Exception as error:
            answers |= {turn.pool: _failure(turn, error) for turn in turns if turn.pool not in answers}

    def _refuse_stranger(self, turn: Turn) -> None:
        if turn.database_id != self.database_id:
            raise Refused(f"pool {turn.pool} belongs to database {turn.database_id}, this is {self.database_id}")

    def _peek(self, turns: Sequence[Turn]) -> dict[int, Answer]:
        """Pool → the answer, where a turn would find nothing. Reads only, so idle pools never take the gate."""
        states = self.store.look_at_pools([turn.pool for turn in turns]) if turns else {}
        answers: dict[int, Answer] = {}
        claims: Claims | None = None
        now = self.clock()
        for turn in turns:
            if (state := states.get(turn.pool)) is None:
                continue
            claims = claims or Claims(self.store, now, state.has_rules)
            if refused := sealing.refusal(state.sealed):
                answers[turn.pool] = refused
            elif _has_news(state, now):
                continue
            elif not any(claims.there_is(want) for want in turn.wants if want.limit > 0):
                answers[turn.pool] = Reply([], [], [], next_due_at=state.instants.next_at, now=now)
        return answers

    def _take_all(self, turns: Sequence[Turn]) -> list[Answer]:
        """All at once; if that fails because of one of them, each by itself."""
        with contextlib.suppress(Spoiled):
            return self._take(turns)
        answers: list[Answer] = []
        for turn in turns:
            try:
                answers += self._take([turn])
            except Exception as error:
                answers.append(_failure(turn, error))
        return answers

    @repeated
    def _take(self, turns: Sequence[Turn]) -> list[Answer]:
        # Unmarked: the pool's next turn, with the same reports and all that it holds, resolves an unknown outcome.
        with self.store.transaction(marked=False, still_s=STILL_S):
            try:
                answers = self._take_together(turns)
            except Undone:
                raise
            except Exception as error:
                if len(turns) == 1:
                    raise
                raise Spoiled from error
        failpoint("turn.after_commit")
        if any(isinstance(answer, Reply) and answer.claims for answer in answers):
            self._bell.there_was_work()
        return answers

    def _take_together(self, turns: Sequence[Turn]) -> list[Answer]:
        """Inside a transaction. Locks: the pools' rows by id, queues, the trees of all reports, then turn by turn."""
        now, single = self.clock(), len(turns) == 1
        sought = _sought_by(turns[0]) if single else None
        states, busy = self.store.begin_turns(
            [turn.pool for turn in turns], sought, locked=not (single and is_idle(turns[0]))
        )
        answers = {turn.pool: _refusal(turn, states.get(turn.pool)) for turn in turns}
        admitted = [turn for turn in turns if answers[turn.pool] is None]
        if admitted:
            state = states[admitted[0].pool]
            common = Common(now, Claims(self.store, now, state.has_rules), state.instants)
            if sought is not None and busy is not None:
                common.claims.know(sought, busy)
            if state.has_rules:
                self.store.lock_queues()
            unknown = self._reports.unknown(admitted)
            self._lock_reported(admitted, unknown)
            for turn in admitted:
                answers[turn.pool] = self._steps(turn, states[turn.pool], unknown.get(turn.pool, ()), common).take()
        failpoint("turn.before_commit")
        return [answer for answer in answers.values() if answer is not None]

    def _steps(self, turn: Turn, state: TurnState, unknown: Sequence[Held], common: Common) -> TurnSteps:
        return TurnSteps(
            turn, state, unknown, common, self.store, self.rng, self._reports, self._housekeeping, self._ticks
        )

    def _lock_reported(self, turns: Sequence[Turn], unknown: Mapping[int, Sequence[Held]]) -> None:
        """The families of everything that will be written about; of several turns also the jobs that have none.

        For once the first one has claimed, nobody after it may wait for a job's row: whoever has that row (a cancel
        of both) might be waiting for what was claimed.
        """
        ids = [each.id for turn in turns for each in turn.reports]
        ids += [held.id for strays in unknown.values() for held in strays]
        if len(turns) == 1:
            self.store.lock_families(ids)
        else:
            self.store.lock_trees(ids)

    # ── a turn that the database takes by itself ────────────────────────────────────────────────────────────────────

    def _take_whole(self, turn: Turn) -> Answer | None:
        """The answer, if that is all it takes: plain successes in, jobs of one lane without rules out."""
        now = self.clock()
        if not _is_brief(turn) or self._housekeeping.is_due(now):
            return None
        if turn.reports and clocks.is_awaited(self._usual_until, now, USUAL):
            return None
        reports = plain_only(turn.reports)
        taken = None if reports is None else self._ask_whole(turn, reports, now)
        if reports is None or taken is None:
            return None
        failpoint("turn.after_commit")
        if refused := _refusal(turn, taken.state):
            return refused
        if taken.ended < len(reports):
            self._usual_until = now + USUAL  # such reports come in numbers: families, queues with rules
            return None
        return self._answer_whole(turn, taken, now)

    def _answer_whole(self, turn: Turn, taken: WholeTurn, now: int) -> Reply | None:
        """None if there is more to do for the pool than the database could."""
        state, claims = taken.state, taken.claims
        assert state is not None
        if claims:
            self._bell.there_was_work()
            Claims(self.store, now, state.has_rules).tell_families(claims)
            if any(claim.cache_key for claim in claims):
                claims = self._sift_whole(claims)
        elif taken.lanes > 1 or (taken.lanes and state.has_rules) or _has_news(state, now):
            return None
        reply = Reply(claims, [], [], next_due_at=state.instants.next_at, now=now)
        if turn.draining and not claims and turn.wants:
            reply.drained = is_drained(self.store, turn.wants[0], now)
        return reply

    @repeated
    def _ask_whole(self, turn: Turn, reports: Sequence[Report], now: int) -> WholeTurn | None:
        failpoint("turn.before_commit")
        want = turn.wants[0] if turn.wants else Capacity((), {}, 0)
        return self.store.take(turn, reports, _sought_by(turn) or Sought((), ()), most_of(want), now, idle=want.idle)

    @repeated
    def _sift_whole(self, claims: list[Claim]) -> list[Claim]:
        """The same after a turn in one message. If it fails, its pool was not told of the claims, and loses them."""
        with writing(self.store):
            trees = Trees(self.store, self.clock(), self.rng)
            runs = flights.sift(self.store, claims, trees)
            trees.settle()
            self.store.ring("end")
            self.store.ring("pool")
            failpoint("sift.before_commit")
        return runs


def _refusal(turn: Turn, state: TurnState | None) -> Answer | None:
    """Why the turn is not taken, if it is not."""
    if state is None:
        return Reply([], [], [], lost=True)
    if (refused := sealing.refusal(state.sealed)) or turn.number > state.turn_no:
        return refused
    return Refused(f"turn {turn.number} of pool {turn.pool} came after turn {state.turn_no}")


def _has_news(state: TurnState, now: int) -> bool:
    """Whether there is more for the pool to hear of than claims."""
    next_at = state.instants.next_at
    return state.stop_requested_at is not None or state.cancels or (next_at is not None and next_at <= now)


def _reply(answer: Answer) -> Reply:
    if isinstance(answer, Reply):
        return answer
    raise answer


def _failure(turn: Turn, error: Exception) -> CoveyError:
    if isinstance(error, CoveyError):
        return error
    failure = CoveyError(f"turn {turn.number} of pool {turn.pool} failed ({type(error).__name__}: {error})")
    failure.__cause__ = error
    return failure


def _sought_by(turn: Turn) -> Sought | None:
    """What the turn looks for, if it is one thing."""
    (want,) = turn.wants if len(turn.wants) == 1 else (None,)
    if want is None or want.limit <= 0 or want.root is not None:
        return None
    return Sought(want.queues, tuple(kind for kind, places in want.places.items() if places > 0))


def _is_brief(turn: Turn) -> bool:
    """It says at most how jobs have ended, and asks for one sort of job."""
    is_plain = len(turn.wants) <= 1 and all(want.root is None for want in turn.wants)
    return not turn.events and turn.held is None and turn.workers is None and is_plain
