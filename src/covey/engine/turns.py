"""The engine as a pool sees it: register, turn, wait, reap, leave."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

from .. import config
from ..core import tree
from ..core.check import storable
from ..core.machine import Signal, decide
from ..core.model import Claim, Held, LostPool, PoolInfo, Registered, Reply, Report, Row, Turn, Want
from ..env import failpoint
from ..errors import Refused
from ..store.dialect import Listener
from ..store.store import Lane, Store
from . import duties, leftovers, sealing
from .again import repeated
from .lanes import Lanes
from .sealing import writing
from .spawns import Spawning
from .trees import Trees

PATIENT_POLLS = 50  # empty polls before the pace slackens
SLACKEN = 1.2

Busy = list[tuple[str, str]] | None  # (queue, kind) that have work; None: not known


class Turns:
    """The Source half of the engine."""

    is_served = False
    longest_wait_s = 1.0
    look_s = 0.5

    store: Store
    clock: Callable[[], int]
    rng: Random
    database_id: str

    def _add_queues(self, names: set[str], now: int) -> None:
        raise NotImplementedError

    def _listeners_init(self) -> None:
        self._ear: Listener | None = None
        self._listening = threading.Lock()
        self._deaf = False
        self._empty_polls = 0
        self._poll_s = 0.0
        self._polls = (0.1, 1.0)  # the shortest and the longest pause between two looks
        self._duties_at = 0

    def _listeners_close(self) -> None:
        if self._ear:
            self._ear.close()
            self._ear = None

    # ── arriving and leaving ────────────────────────────────────────────────────────────────────────────────────────

    def register(self, info: PoolInfo) -> Registered:
        """The pool is known and may take turns."""
        pool, stored = self._register(info)
        settings = config.effective(stored)
        self._polls = settings["poll_seconds"], settings["max_poll_seconds"]
        leftovers.sweep(self.store, self._live())
        return Registered(pool, self.database_id, settings, self._live())

    @repeated
    def _register(self, info: PoolInfo) -> tuple[int, dict[str, str]]:
        with writing(self.store):
            now = self.clock()
            pool = self.store.add_pool(info, now)
            self.store.event("pool_started", now=now, pool=pool, text=f"{info.name} (pid {info.pid} on {info.host})")
            return pool, {key: value for key, value in self.store.ask("config") if key in config.SETTINGS}

    def _live(self) -> str:
        if not self.store.dialect.side:
            return ""
        live = os.path.join(self.store.dialect.side, "live")
        os.makedirs(live, exist_ok=True)
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
        if turn.database_id != self.database_id:
            raise Refused(f"pool {turn.pool} belongs to database {turn.database_id}, this is {self.database_id}")
        idle = _is_idle(turn)
        # Where a transaction keeps nobody waiting, an idle turn looks and claims in one.
        if idle and not self.store.dialect.row_locks and (reply := self._peek(turn)) is not None:
            return reply
        failpoint("turn.before_begin")
        return self._turn(turn, idle)

    @repeated
    def _turn(self, turn: Turn, idle: bool) -> Reply:
        # Unmarked: the pool's next turn, with the same reports and all that it holds, resolves an unknown outcome.
        with self.store.transaction(marked=False):
            now = self.clock()
            found, busy = self.store.begin_turn(turn.pool, _kinds_of_any_queue(turn), locked=not idle)
            if not found:
                return Reply([], [], [], lost=True)
            last, stop_requested_at, sealed, cancels, due_at, deadline_at, has_rules = found[0]
            sealing.refuse(sealed)
            if turn.number <= last:
                raise Refused(f"turn {turn.number} of pool {turn.pool} came after turn {last}")
            reply = Reply([], [], [], stop=stop_requested_at is not None, now=now)
            if has_rules:
                self.store.lock_queues()
            self.store.lock_families([report.id for report in turn.reports])
            trees = Trees(self.store, now, self.rng)
            ended = self._apply(turn, reply, trees)
            moved = self._reconcile(turn, trees) if turn.held is not None else 0
            if deadline_at is not None and deadline_at <= now:
                ended += trees.expire(duties.BATCH)
            trees.settle()
            failpoint("turn.after_reports")
            promoted = [] if due_at is None or due_at > now else self.store.ask("promote", now=now, limit=duties.BATCH)
            if promoted or trees.stirred or moved:
                busy = None  # other lanes may have work now
            for want in turn.wants:
                if want.limit > 0:
                    reply.claims += self._claim(turn.pool, want, Lanes(self.store, now, has_rules), busy, now)
                    busy = None if len(turn.wants) > 1 else busy
            failpoint("turn.after_claim")
            if cancels or trees.stirred:
                reply.cancels = [Held(*row) for row in self.store.ask("stopping_of", pool=turn.pool)]
            if not idle or reply.claims or promoted or ended:  # else nothing was found, and nothing is written
                self._beat(turn, now)
                self._do_duties(now)
            if turn.draining and not reply.claims and turn.wants:
                reply.drained = all(self._drained(want, now) for want in turn.wants)
            quiet = due_at is None and deadline_at is None and not trees.stirred and not moved
            reply.next_due_at = None if quiet else _earliest(*self.store.ask("instants")[0])
            if ended:
                self.store.ring("end")
            if len(promoted) + moved + trees.opened > len(reply.claims):
                self.store.ring("pool")
            failpoint("turn.before_commit")
        failpoint("turn.after_commit")
        if reply.claims:
            self._empty_polls = 0
        return reply

    def _apply(self, turn: Turn, reply: Reply, trees: Trees) -> int:
        """Fenced: a report about a run that is no longer the job's changes nothing. How many jobs ended or moved on."""
        if not turn.reports:
            return 0
        reports = [storable(report) for report in _first_of_each(turn.reports)]
        done = self._complete_plain(turn.pool, [report for report in reports if _is_plain(report)], trees)
        others = [report for report in reports if report.id not in done]
        if not others:
            return len(done)
        trees.stirred = True
        rows = self.store.rows([report.id for report in others])
        return len(done) + sum(
            self._apply_one(report, rows.get(report.id), turn.pool, reply, trees) for report in others
        )

    def _complete_plain(self, pool: int, reports: list[Report], trees: Trees) -> set[int]:
        """Successes without children or output, all at once: the rules make each COMPLETED, the fence guards them."""
        if not reports:
            return set()
        done, kin = self.store.complete(pool, reports, trees.now)
        if results := [report for report in reports if report.result is not None and report.id in done]:
            self.store.set_results(results)
        trees.completed(kin)
        return done

    def _apply_one(self, report: Report, row: Row | None, pool: int, reply: Reply, trees: Trees) -> bool:
        """Whether the report moved its job."""
        now = trees.now
        if row is None or report.fence != row.fence or (row.state == "processing" and row.pool != pool):
            if row is None or not self._release(row, pool, report, trees):
                reply.refused.append(Held(report.id, report.fence))
            return False
        if row.state != "processing":
            return False  # my own earlier report: its answer was lost
        if report.outcome == "gone":
            reply.refused.append(Held(report.id, report.fence))  # nobody cancelled it
            return False
        signal = Signal(report.outcome, report.error, report.after_s)
        if report.outcome == "success" and report.spawned:
            spawning = Spawning(self.store, row, report, now=now, rng=self.rng, add_queues=self._add_queues)
            report, signal = spawning.report, spawning.signal
            trees.opened += spawning.opened
        change = decide(row, signal, now, self.rng)
        self.store.change(row, change, now, report)
        if change.ended:
            trees.ended(row, change.state)
        if change.charged or report.output is not None:
            self.store.add_attempt(row, report, report.outcome, now)
        if signal.name == "success" and report.result is not None:
            self.store.set_results([report])
        return True

    def _release(self, row: Row, pool: int, report: Report, trees: Trees) -> bool:
        """A cancelled job's family is gone, however its run ended."""
        if row.state != "cancelled" or row.pool != pool or report.fence != row.fence - 1:
            return False  # not the run that was cancelled
        self.store.change(row, decide(row, Signal("gone"), trees.now, self.rng), trees.now, report)
        self.store.add_attempt(row, report, "cancelled", trees.now)
        trees.released(row)
        return True

    def _reconcile(self, turn: Turn, trees: Trees) -> int:
        """Rows that the pool does not know it has (an answer was lost) are handed back."""
        known = {(held.id, held.fence) for held in turn.held or ()}
        strays = [Held(*mine) for mine in self.store.ask("held_by", pool=turn.pool) if mine not in known]
        return self._strand(turn.pool, strays, trees) if strays else 0

    def _strand(self, pool: int, strays: Sequence[Held], trees: Trees) -> int:
        ids = [held.id for held in strays]
        self.store.lock_trees(ids)
        for row in self.store.rows(ids).values():
            if row.pool != pool:
                continue  # it was ended meanwhile
            change = decide(row, Signal("stranded"), trees.now, self.rng)
            self.store.change(row, change, trees.now)
            if change.ended:
                trees.released(row)
        return len(strays)

    def _claim(self, pool: int, want: Want, lanes: Lanes, busy: Busy, now: int) -> list[Claim]:
        """The next jobs in order for which there is a place of their kind. A full kind does not hide another's jobs."""
        chosen: list[int] = []
        left = dict(want.places)
        bound = want.limit if want.bound is None else want.bound
        plain = lanes.plain
        found = self._lanes(want, lanes, busy)
        if plain and len(found) == 1:
            only = found[0]
            most = only.most if only.kind == "async" else min(only.most, bound)
            claims = self.store.claim_lane(pool, only._replace(most=most), now, idle=want.idle)
            if claims is not None:
                self._tell_families(claims, now)
                return claims
        for id, kind, queue, lane in self.store.ready(found, want.limit, locked=True):
            if left[kind] > 0 and (bound > 0 or kind == "async") and (plain or lanes.admits(id, queue, lane)):
                left[kind] -= 1
                bound -= kind != "async"
                chosen.append(id)
                if len(chosen) == want.limit:
                    break
        claims = self.store.claim(pool, chosen, now, idle=want.idle) if chosen else []
        lanes.taken(claims)
        self._tell_families(claims, now)
        return claims

    def _tell_families(self, claims: Sequence[Claim], now: int) -> None:
        """Each claim has what its run must know of its tree: the time that is left, its children, failed siblings."""
        parents = {claim.parent_id for claim in claims if claim.parent_id is not None}
        failed = self.store.failed_outcomes(parents) if parents else {}
        for claim in claims:
            if claim.parent_id in failed:
                claim.failed_siblings = failed[claim.parent_id]
            if claim.tree_deadline_at is not None:
                claim.timeout_s = tree.time_left_s(claim.timeout_s, claim.tree_deadline_at, now)
            if claim.phase == "join":
                claim.children = self.store.outcomes(claim.id)

    def _lanes(self, want: Want, lanes: Lanes, busy: Busy = None) -> list[Lane]:
        """Everything that this pool may claim from now. ``busy``: which (queue, kind) have work, if that is known."""
        places = {kind: min(n, want.limit) for kind, n in want.places.items() if n > 0}
        if want.queues is not None:
            busy = [(queue, kind) for queue in want.queues for kind in places]
        elif busy is None:
            busy = self.store.busy_lanes(list(places))
        return lanes.of(busy, places)

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

    def _do_duties(self, now: int) -> None:
        if now >= self._duties_at:
            done = duties.prune(self.store, now), duties.forget_requests(self.store, now)
            more = duties.BATCH in done
            self._duties_at = now if more else now + duties.PERIOD
            duties.resume(self.store, now)
            duties.heal(self.store, now, self.rng)

    def _drained(self, want: Want, now: int) -> bool:
        queues = want.queues if want.queues is not None else [row[0] for row in self.store.ask("queues")]
        paused = {row[0] for row in self.store.ask("paused_queues", now=now)}
        ours = {"queues": json.dumps(queues), "kinds": json.dumps(list(want.places))}
        free = json.dumps([queue for queue in queues if queue not in paused])
        return not self.store.value("undrained", open=free, **ours) and not self.store.value("undrained_above", **ours)

    # ── waiting for something to do ─────────────────────────────────────────────────────────────────────────────────

    def _peek(self, turn: Turn) -> Reply | None:
        """The answer if a turn would find nothing. Reads only, so idle pools never take the gate."""
        found = self.store.ask("pool_for_turn", pool=turn.pool)
        if not found:
            return None
        _, stop, sealed, cancels, due_at, deadline_at, has_rules = found[0]
        sealing.refuse(sealed)
        now = self.clock()
        next_due_at = _earliest(due_at, deadline_at)
        if stop or cancels or (next_due_at is not None and next_due_at <= now):
            return None
        lanes = Lanes(self.store, now, has_rules)
        if any(any(self.store.ready(self._lanes(want, lanes), 1)) for want in turn.wants if want.limit > 0):
            return None
        return Reply([], [], [], next_due_at=next_due_at, now=now)

    def wait(self, pool: int, queues: tuple[str, ...] | None, timeout_s: float) -> bool:
        """Rung, or time to look again: adaptive where no bell can be hung, else the bell and a slow poll."""
        ear = self._listen()
        if ear is None:
            time.sleep(min(timeout_s, self._pace()))
            return True
        return ear.wait(min(timeout_s, self._polls[1]))

    def wake(self) -> None:
        if ear := self._listen():
            ear.wake()

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


def _first_of_each(reports: list[Report]) -> list[Report]:
    """One report per run: if it is told twice, the first counts."""
    return list({(report.id, report.fence): report for report in reversed(reports)}.values())


def _kinds_of_any_queue(turn: Turn) -> list[str] | None:
    """The kinds that are wanted from whichever queue has work, if that is all that is wanted."""
    (want,) = turn.wants if len(turn.wants) == 1 else (None,)
    if want is None or want.queues is not None or want.limit <= 0:
        return None
    return [kind for kind, places in want.places.items() if places > 0]


def _earliest(*instants: int | None) -> int | None:
    return min((at for at in instants if at is not None), default=None)


def _is_plain(report: Report) -> bool:
    return report.outcome == "success" and report.output is None and not report.spawned


def _is_idle(turn: Turn) -> bool:
    return not (turn.reports or turn.events or turn.draining) and turn.held is None and turn.workers is None
