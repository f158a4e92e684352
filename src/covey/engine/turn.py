"""The engine as a pool sees it: register, turn, wait, reap, leave."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from .. import settings as config
from ..core import clocks
from ..core.model import ENDED, KINDS, Kind, Report
from ..core.turn import Capacity, Held, LostPool, PendingWork, PoolInfo, Registered, Reply, Turn
from ..env import failpoint
from ..errors import CoveyError, InvalidInput, Refused, Undone
from ..store.dialect import Listener
from ..store.postgres.store import Taken
from ..store.ready import Found, Sought
from ..store.sqlite.sharing import follow
from . import duties, leftovers, requests, sealing
from .again import repeated
from .claims import Claims, most_of
from .queues import Lanes
from .reports import Reports, plain_only
from .sealing import writing
from .trees import Trees

PATIENT_POLLS = 50  # empty polls before the pace slackens
SLACKEN = 1.2
USUAL = 1_000_000  # µs; after one message was not enough, turns with reports are taken as always for so long
MOST_READY = 1000  # how far the jobs of a lane are counted: more places than that nobody wakes for

Answer = Reply | CoveyError


class Spoiled(Exception):
    """One of several turns failed, and with it their transaction."""


class Common(Struct):
    """What the turns of one transaction share. Each sees what those before it have done."""

    now: int
    claims: Claims
    due_at: int | None
    deadline_at: int | None
    changed: bool = False  # whether somebody's report may have cancelled what another one runs


class Turns(Reports):
    """The Source half of the engine."""

    is_served = False
    longest_wait_s = 1.0
    look_s = 0.5

    database_id: str

    def _listeners_init(self) -> None:
        self._ear: Listener | None = None
        self._listening = threading.Lock()
        self._deaf = False
        self._empty_polls = 0
        self._poll_s = 0.0
        self._polls = (0.1, 1.0)  # the shortest and the longest pause between two looks
        self._duties_at = 0
        self._usual_until = 0

    def _listeners_close(self) -> None:
        if self._ear:
            self._ear.close()
            self._ear = None

    # ── arriving and leaving ────────────────────────────────────────────────────────────────────────────────────────

    def register(self, info: PoolInfo) -> Registered:
        """The pool is known and may take turns; with a ticket once, however often it is asked, for an hour."""
        pool, stored = self._register(info)
        settings = config.effective(stored)
        self._polls = settings["poll_seconds"], settings["max_poll_seconds"]
        leftovers.sweep(self.store, self._live())
        return Registered(pool, self.database_id, settings, self._live())

    @repeated
    def _register(self, info: PoolInfo) -> tuple[int, dict[str, str]]:
        with writing(self.store):
            now = self.clock()
            pool = None if info.ticket is None else requests.registered(self.store, info.ticket, now)
            if pool is None:
                pool = self.store.add_pool(info, now)
                text = f"{info.name} (pid {info.pid} on {info.host})"
                self.store.event("pool_started", now=now, pool=pool, text=text)
                if info.ticket is not None:
                    requests.register(self.store, info.ticket, pool)
            settings = {key: value for key, value in self.store.ask("config") if key in config.SETTINGS}
            failpoint("register.before_commit")
        return pool, settings

    def _live(self) -> str:
        if not self.store.dialect.side:
            return ""
        live = os.path.join(self.store.dialect.side, "live")
        os.makedirs(live, exist_ok=True)
        follow(live, os.stat(self.store.dialect.side))
        return live

    @repeated
    def leave(self, pool: int) -> None:
        """The pool is forgotten; whatever it still held is pending again."""
        with writing(self.store):
            now = self.clock()
            self.store.lock_queues()
            held = [Held(*row) for row in self.store.ask("held_by", pool=pool)]
            trees = Trees(self.store, now, self.rng)
            self._strand(pool, held, trees)
            trees.settle()
            self.store.ask("remove_pool", pool=pool)
            self.store.event("pool_stopped", now=now, pool=pool)
            failpoint("leave.before_commit")
        if held:
            self.store.ring("pool")

    def pools(self) -> list[LostPool]:
        return self.store.pools()

    def reap(self, pool: int, beat: int, reason: str | None = None) -> int:
        handed_back = duties.reap(self.store, pool, beat, self.clock, self.rng, reason)
        leftovers.sweep(self.store, self._live())
        return handed_back

    def orphaned_pools(self) -> list[int]:
        """Pools that still hold jobs although their row is gone."""
        return [row[0] for row in self.store.ask("held_without_pool")]

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def turn(self, turn: Turn) -> Reply:
        """Reports are written, free places are filled, the beat is shown: one transaction. An idle turn only reads."""
        self._refuse_stranger(turn)
        # Where a transaction keeps nobody waiting, an idle turn looks and claims in one.
        if _is_idle(turn) and not self.store.dialect.row_locks and (seen := self._peek([turn])):
            return _reply(seen[turn.pool])
        failpoint("turn.before_begin")
        if self.store.dialect.row_locks and (answer := self._take_at_once(turn)):
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
        try:
            left = [turn for turn in turns if turn.pool not in answers]
            if all(_is_idle(turn) for turn in left):
                answers |= self._peek(left)
                left = [turn for turn in left if turn.pool not in answers]
            if left:
                failpoint("turn.before_begin")
                answers |= zip((turn.pool for turn in left), self._take_all(left), strict=True)
        except Exception as error:
            answers |= {turn.pool: _failure(turn, error) for turn in turns if turn.pool not in answers}
        return [answers[pool] for pool in pools]

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
        with self.store.transaction(marked=False, still_s=duties.STILL_S):
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
            self._empty_polls = 0
        return answers

    def _take_at_once(self, turn: Turn) -> Answer | None:
        """The turn in one message, if that is all it takes: plain successes in, jobs of one lane without rules out."""
        now = self.clock()
        if not _is_brief(turn) or not clocks.is_awaited(self._duties_at, now, duties.PERIOD):
            return None
        if turn.reports and clocks.is_awaited(self._usual_until, now, USUAL):
            return None
        reports = plain_only(turn.reports)
        taken = None if reports is None else self._ask_at_once(turn, reports, now)
        if reports is None or taken is None:
            return None
        failpoint("turn.after_commit")
        if refused := _refusal(turn, taken.found):
            return refused
        assert taken.found is not None
        _, stop, _, cancels, due_at, deadline_at, has_rules = taken.found
        next_due_at = _earliest(due_at, deadline_at)
        if taken.ended < len(reports):
            self._usual_until = now + USUAL  # such reports come in numbers: families, queues with rules
            return None
        if taken.claims:
            self._empty_polls = 0
            Claims(self.store, now, has_rules).tell_families(taken.claims)
        elif stop or cancels or taken.lanes > 1 or (taken.lanes and has_rules) or (next_due_at or now + 1) <= now:
            return None
        reply = Reply(taken.claims, [], [], next_due_at=next_due_at, now=now)
        if turn.draining and not taken.claims and turn.wants:
            reply.drained = self._drained(turn.wants[0], now)
        return reply

    @repeated
    def _ask_at_once(self, turn: Turn, reports: Sequence[Report], now: int) -> Taken | None:
        failpoint("turn.before_commit")
        want = turn.wants[0] if turn.wants else Capacity((), {}, 0)
        return self.store.take(turn, reports, _sought_by(turn) or Sought((), ()), most_of(want), now, idle=want.idle)

    def _take_together(self, turns: Sequence[Turn]) -> list[Answer]:
        """Inside a transaction. Locks: the pools' rows by id, queues, the trees of all reports, then turn by turn."""
        now, single = self.clock(), len(turns) == 1
        sought = _sought_by(turns[0]) if single else None
        found, busy = self.store.begin_turns(
            [turn.pool for turn in turns], sought, locked=not (single and _is_idle(turns[0]))
        )
        answers = {turn.pool: _refusal(turn, found.get(turn.pool)) for turn in turns}
        admitted = [turn for turn in turns if answers[turn.pool] is None]
        if admitted:
            *_, due_at, deadline_at, has_rules = found[admitted[0].pool]
            common = Common(now, Claims(self.store, now, has_rules), due_at, deadline_at)
            if sought is not None and busy is not None:
                common.claims.know(sought, busy)
            if has_rules:
                self.store.lock_queues()
            unknown = self._unknown(admitted)
            if self.store.dialect.row_locks:
                self._lock_reported(admitted, unknown)
            for turn in admitted:
                answers[turn.pool] = self._take_one(turn, found[turn.pool], unknown.get(turn.pool, ()), common)
        failpoint("turn.before_commit")
        return [answer for answer in answers.values() if answer is not None]

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

    def _take_one(self, turn: Turn, found: Found, unknown: Sequence[Held], common: Common) -> Reply:
        """Reports, ends, promotion, claims, the beat; what is common is as the next turn must find it."""
        _, stop_requested_at, _, cancels, *_ = found
        now = common.now
        reply = Reply([], [], [], stop=stop_requested_at is not None, now=now)
        trees = Trees(self.store, now, self.rng)
        ended = self._apply(turn, reply, trees)
        moved = self._reconcile(turn, unknown, reply, trees)
        if common.deadline_at is not None and common.deadline_at <= now:
            ended += trees.expire(duties.BATCH)
        trees.settle()
        failpoint("turn.after_reports")
        promoted = self._promote(now) if common.due_at is not None and common.due_at <= now else 0
        common.changed |= trees.changed
        if promoted or trees.changed or moved:
            common.claims.forget()
        for want in turn.wants:
            if want.limit > 0:
                reply.claims += common.claims.take(turn.pool, want)
        failpoint("turn.after_claim")
        if cancels or common.changed:
            reply.cancels = [Held(*row) for row in self.store.ask("stopping_of", pool=turn.pool)]
        tidied = False
        if not _is_idle(turn) or reply.claims or promoted or ended:  # else nothing was found, and nothing is written
            self._beat(turn, now)
            tidied = self._do_duties(common)
        if turn.draining and not reply.claims and turn.wants:
            reply.drained = all(self._drained(want, now) for want in turn.wants)
        if promoted or trees.changed or moved or tidied or (reply.claims and common.deadline_at is not None):
            common.due_at, common.deadline_at = self.store.ask("instants")[0]
        reply.next_due_at = _earliest(common.due_at, common.deadline_at)
        if ended:
            self.store.ring("end")
        if promoted + moved + trees.opened > len(reply.claims):
            self.store.ring("pool")
        return reply

    @repeated
    def beat(self, pools: Sequence[int]) -> set[int]:
        """These pools are alive as of now, whatever their turns. Those among them that were given up meanwhile."""
        if not pools:
            return set()
        with self.store.transaction(marked=False, still_s=duties.STILL_S):  # to beat twice harms nobody
            (_, _, sealed), *_ = self.store.ask("meta")
            sealing.refuse(sealed)
            alive = self.store.ask("beat_pools", pools=json.dumps(list(pools)), now=self.clock())
            failpoint("beat.before_commit")
        return set(pools) - {row[0] for row in alive}

    def pending_work(self) -> PendingWork:
        """What there is to do for pools, without looking at more than a thousand jobs of a lane. Reads only."""
        now = self.clock()
        lanes = Lanes(self.store, now, has_rules=True)
        counted = self.store.ready_counts(KINDS, MOST_READY)
        ready = [(queue, kind, lanes.bounded(queue, kind, waiting)) for queue, kind, waiting in counted]
        cancels: dict[int, set[tuple[int, int]]] = {}
        for pool, id, fence in self.store.ask("stopping"):
            cancels.setdefault(pool, set()).add((id, fence))
        return PendingWork(
            ready=[each for each in ready if each[2]],
            stops={row[0] for row in self.store.ask("asked_to_stop")},
            cancels=cancels,
            due_at=_earliest(*self.store.ask("instants")[0]),
            now=now,
        )

    def _refuse_stranger(self, turn: Turn) -> None:
        if turn.database_id != self.database_id:
            raise Refused(f"pool {turn.pool} belongs to database {turn.database_id}, this is {self.database_id}")

    def _promote(self, now: int) -> int:
        return len(self.store.ask("promote", now=now, limit=duties.BATCH))

    def _beat(self, turn: Turn, now: int) -> None:
        zygote_pid, zygote_ticks = turn.zygote or (None, None)
        self.store.ask(
            "beat",
            pool=turn.pool,
            turn_no=turn.number,
            now=now,
            draining=turn.draining,
            zygote_pid=zygote_pid,
            zygote_ticks=zygote_ticks,
        )
        if turn.workers is not None:
            self.store.put_workers(turn.pool, turn.workers, turn.given_up)
        if turn.events:
            self.store.add_events(turn.pool, turn.events)

    def _do_duties(self, common: Common) -> bool:
        """Whether it was time for them."""
        now = common.now
        if clocks.is_awaited(self._duties_at, now, duties.PERIOD):
            return False
        done = (
            duties.heal(self.store, now, self.rng),  # first: the others judge by what it has noticed
            duties.prune(self.store, now),
            duties.forget_requests(self.store, now),
        )
        more = duties.BATCH in done
        self._duties_at = now if more else now + duties.PERIOD
        duties.resume(self.store, now)
        common.claims.forget()
        return True

    def _drained(self, want: Capacity, now: int) -> bool:
        if want.root is not None:
            return self._tree_drained(want.root, now)
        queues = want.queues if want.queues is not None else [row[0] for row in self.store.ask("queues")]
        paused = {row[0] for row in self.store.ask("paused_queues", now=now)}
        ours = {"queues": json.dumps(queues), "kinds": json.dumps(list(want.places))}
        free = json.dumps([queue for queue in queues if queue not in paused])
        # In this order: a join that becomes ours between the two is seen by the second.
        return not self.store.value("undrained_above", **ours) and not self.store.value("undrained", open=free, **ours)

    def _tree_drained(self, root: int, now: int) -> bool:
        row = self.store.row(root)
        if row is None or row.state in ENDED:
            return True
        return row.state == "pending" and row.queue in {each[0] for each in self.store.ask("paused_queues", now=now)}

    # ── waiting for something to do ─────────────────────────────────────────────────────────────────────────────────

    def _peek(self, turns: Sequence[Turn]) -> dict[int, Answer]:
        """Pool → the answer, where a turn would find nothing. Reads only, so idle pools never take the gate."""
        found = self.store.look_at_pools([turn.pool for turn in turns]) if turns else {}
        answers: dict[int, Answer] = {}
        claims: Claims | None = None
        now = self.clock()
        for turn in turns:
            if turn.pool not in found:
                continue
            _, stop, sealed, cancels, due_at, deadline_at, has_rules = found[turn.pool]
            next_due_at = _earliest(due_at, deadline_at)
            claims = claims or Claims(self.store, now, has_rules)
            if refused := sealing.refusal(sealed):
                answers[turn.pool] = refused
            elif stop or cancels or (next_due_at is not None and next_due_at <= now):
                continue
            elif not any(claims.there_is(want) for want in turn.wants if want.limit > 0):
                answers[turn.pool] = Reply([], [], [], next_due_at=next_due_at, now=now)
        return answers

    def wait(
        self, pool: int, queues: tuple[str, ...] | None, timeout_s: float, kinds: tuple[Kind, ...] | None = None
    ) -> bool:
        """Rung, or time to look again: adaptive where no bell can be hung, else the bell and a slow poll."""
        ear = self._listen()
        if ear is None:
            time.sleep(min(timeout_s, self._pace()))
            return True
        return ear.wait(min(timeout_s, self._polls[1]))

    def wake(self) -> None:
        if ear := self._listen():
            ear.wake()

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        return self.store.dialect.while_waiting(work)

    def _listen(self) -> Listener | None:
        with self._listening:  # `wait` and `wake` come from two threads
            if self._ear is None and not self._deaf:
                try:
                    self._ear = self.store.listen("pool")
                except OSError:
                    self._deaf = True
            return self._ear

    def _pace(self) -> float:
        least_s, most_s = self._polls
        self._empty_polls += 1
        if self._empty_polls <= PATIENT_POLLS:
            self._poll_s = least_s
        else:
            self._poll_s = min(self._poll_s * SLACKEN, most_s)
        return self._poll_s


def _refusal(turn: Turn, found: Found | None) -> Answer | None:
    """Why the turn is not taken, if it is not."""
    if found is None:
        return Reply([], [], [], lost=True)
    last, _, sealed, *_ = found
    stale = Refused(f"turn {turn.number} of pool {turn.pool} came after turn {last}") if turn.number <= last else None
    return sealing.refusal(sealed) or stale


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


def _earliest(*instants: int | None) -> int | None:
    return min((at for at in instants if at is not None), default=None)


def _is_idle(turn: Turn) -> bool:
    return not (turn.reports or turn.events or turn.draining) and turn.held is None and turn.workers is None


def _is_brief(turn: Turn) -> bool:
    """It says at most how jobs have ended, and asks for one sort of job."""
    is_plain = len(turn.wants) <= 1 and all(want.root is None for want in turn.wants)
    return not turn.events and turn.held is None and turn.workers is None and is_plain
