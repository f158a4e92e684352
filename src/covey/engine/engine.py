"""The local engine: the Client of producers and people, the Source of pools, the Backend of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from operator import attrgetter
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar

from .. import settings as config
from ..core import check
from ..core.machine import SECOND
from ..core.model import Enqueued, Spec
from ..core.options import Defaults, asks
from ..core.ports import QueuePlace
from ..core.specs import check_spec
from ..core.turn import Caller
from ..env import failpoint
from ..errors import InvalidInput
from ..store.store import Store
from . import arrivals, requests
from .again import repeated
from .cache import CacheVerbs
from .callers import Callers
from .jobs import Jobs
from .live_output import RunningOutput
from .loans import Loans
from .pools import Pools
from .queues import QueueRules
from .reports import Reports
from .schedules import Schedules
from .sealing import refuse, writing
from .spawns import Queues
from .ticks import Ticks
from .tokens import Tokens
from .turn import Turns
from .views import Views
from .work_bell import WorkBell

P = ParamSpec("P")
R = TypeVar("R")


def _by(part: str, verb: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Engine, P], R]:
    """The verb as that part of the engine does it."""
    find: Callable[[Engine], Callable[P, R]] = attrgetter(f"{part}.{verb.__name__}")

    @wraps(verb)
    def passed_on(engine: Engine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return find(engine)(*args, **kwargs)

    return passed_on


class Engine:
    """Everything that can be asked of one database. Safe to share between threads; not across a fork.

    Each verb is one transaction, of one of its parts.
    """

    is_served = False
    longest_wait_s = 1.0
    look_s = 0.5

    def __init__(self, store: Store, *, clock: Callable[[], int], rng: Random) -> None:
        self.store = store
        self.clock = clock
        self._known_queues: set[str] = set()
        self._defaults: tuple[Defaults | None, int] = (None, 0)
        self.database_id: str = store.value("meta")
        reports = Reports(store, rng, self._add_queues)
        self._views = Views(store, clock)
        self._bell = WorkBell(store)
        ticks = Ticks(store, rng, self._add_queues)
        self._schedules = Schedules(store, clock, rng, ticks)
        self._turns = Turns(store, clock, rng, self.database_id, reports, self._bell, ticks)
        self._pools = Pools(store, clock, rng, self.database_id, reports, self._bell)
        self._loans = Loans(store, clock, self._pools, self._turns)
        self._jobs = Jobs(store, clock, rng, self._views, self._add_queues)
        self._queues = QueueRules(store, clock)
        self._output = RunningOutput(store.dialect.side, self._views.job)
        self._callers = Callers(store, clock, rng)
        self._tokens = Tokens(store, clock)
        self._cache = CacheVerbs(store, clock, self._views)

    turn = _by("_turns", Turns.turn)
    turns = _by("_turns", Turns.turns)
    wait = _by("_bell", WorkBell.wait)
    wake = _by("_bell", WorkBell.wake)
    while_waiting = _by("store", Store.while_waiting)

    register = _by("_pools", Pools.register)
    beat = _by("_pools", Pools.beat)
    pending_work = _by("_pools", Pools.pending_work)
    pools = _by("_pools", Pools.pools)
    orphaned_pools = _by("_pools", Pools.orphaned_pools)
    reap = _by("_pools", Pools.reap)
    leave = _by("_pools", Pools.leave)
    stop_pools = _by("_pools", Pools.stop_pools)
    failed_siblings = _by("_pools", Pools.failed_siblings)

    lend = _by("_loans", Loans.lend)
    renew = _by("_loans", Loans.renew)
    release = _by("_loans", Loans.release)
    stage = _by("_loans", Loans.stage)
    settle = _by("_loans", Loans.settle)
    overdue_loans = _by("_loans", Loans.overdue_loans)
    time_out = _by("_loans", Loans.time_out)

    cancel = _by("_jobs", Jobs.cancel)
    retry = _by("_jobs", Jobs.retry)
    edit = _by("_jobs", Jobs.edit)
    remove = _by("_jobs", Jobs.remove)
    prune_window = _by("_jobs", Jobs.prune_window)

    pause = _by("_queues", QueueRules.pause)
    resume = _by("_queues", QueueRules.resume)
    set_queue = _by("_queues", QueueRules.set_queue)

    job = _by("_views", Views.job)
    jobs = _by("_views", Views.jobs)
    jobs_of = _by("_views", Views.jobs_of)
    newest_id = _by("_views", Views.newest_id)
    tree = _by("_views", Views.tree)
    history = _by("_views", Views.history)
    wait_for = _by("_views", Views.wait_for)
    listen = _by("_views", Views.listen)
    ended = _by("_views", Views.ended)
    outcomes = _by("_views", Views.outcomes)
    within = _by("_views", Views.within)
    queues_of = _by("_views", Views.queues_of)
    why = _by("_views", Views.why)
    events = _by("_views", Views.events)
    pool_events = _by("_views", Views.pool_events)
    status = _by("_views", Views.status)
    disk = _by("_views", Views.disk)
    queues = _by("_views", Views.queues)
    counts = _by("_views", Views.counts)
    counted_queues = _by("_views", Views.counted_queues)
    moment = _by("_views", Views.moment)
    oldest = _by("_views", Views.oldest)
    samples = _by("_views", Views.samples)
    ever_ended = _by("_views", Views.ever_ended)
    latest_runs = _by("_views", Views.latest_runs)
    pool_views = _by("_views", Views.pool_views)

    output = _by("_output", RunningOutput.output)
    show_output = _by("_output", RunningOutput.show_output)
    shown_output = _by("_output", RunningOutput.shown_output)
    hide_output = _by("_output", RunningOutput.hide_output)

    callers = _by("_callers", Callers.callers)
    still_here = _by("_callers", Callers.still_here)
    let_go = _by("_callers", Callers.let_go)
    abandon = _by("_callers", Callers.abandon)

    put_schedule = _by("_schedules", Schedules.put_schedule)
    schedule = _by("_schedules", Schedules.schedule)
    schedules = _by("_schedules", Schedules.schedules)
    ticks = _by("_schedules", Schedules.ticks)
    next_ticks = _by("_schedules", Schedules.next_ticks)
    pause_schedule = _by("_schedules", Schedules.pause_schedule)
    resume_schedule = _by("_schedules", Schedules.resume_schedule)
    run_schedule = _by("_schedules", Schedules.run_schedule)
    backfill_schedule = _by("_schedules", Schedules.backfill_schedule)
    remove_schedule = _by("_schedules", Schedules.remove_schedule)

    create_token = _by("_tokens", Tokens.create_token)
    tokens = _by("_tokens", Tokens.tokens)
    token_rows = _by("_tokens", Tokens.token_rows)
    revoke_token = _by("_tokens", Tokens.revoke_token)

    cache_status = _by("_cache", CacheVerbs.cache_status)
    explain_cache = _by("_cache", CacheVerbs.explain_cache)
    prune_cache = _by("_cache", CacheVerbs.prune_cache)

    @property
    def place(self) -> QueuePlace:
        return QueuePlace(self.store.dialect.url, self.store.dialect.side, served=False)

    # ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(
        self,
        specs: Sequence[Spec],
        *,
        request: str | None = None,
        caller: Caller | None = None,
        token: int = 0,
        within: tuple[str, ...] | None = None,
    ) -> list[Enqueued]:
        """All of them are on disk, in order, or none is.

        With a ``request``, a name that the client chose for this very call, the same again is answered the same and
        writes nothing, for an hour. With a ``caller``, those that are new end with him: there is no moment in which
        one of them exists and is not tied to him. ``token`` and ``within``: who asks, and the only queues that he may
        see.
        """
        for spec in specs:
            check_spec(spec)
        if request is not None:
            check.check_text(request, "request", most=200)
        if caller is not None:
            check.check_caller(caller)
        elif (
            request is None
            and len(specs) == 1
            and specs[0].queue_name in self._known_queues
            and not asks(specs[0])
            and specs[0].cache is None
            and (known := self._known_defaults())
        ):
            id = self._express(specs[0], known)
            if id is not None:
                return [Enqueued(id)]
        return self._enqueue(specs, request, caller, token, within) if specs else []

    @repeated
    def _express(self, spec: Spec, known: Defaults) -> int | None:
        return self.store.insert_express(spec, self.clock(), known)

    def _known_defaults(self) -> Defaults | None:
        """What was read for an enqueue less than a second ago: settings change once a month."""
        known, at = self._defaults
        return known if 0 <= self.clock() - at < SECOND else None

    @repeated
    def _enqueue(
        self,
        specs: Sequence[Spec],
        request: str | None,
        caller: Caller | None,
        token: int,
        within: tuple[str, ...] | None,
    ) -> list[Enqueued]:
        with self.store.transaction():
            now = self.clock()
            queues = Queues(self.store)
            refuse(queues.sealed)
            if request is not None and (before := requests.take(self.store, request, specs, now, token)) is not None:
                return before
            answers = arrivals.admit(specs, self.store, within=within)
            fresh = arrivals.fresh(specs, answers)
            self._add_queues({spec.queue_name for spec in fresh}, now)
            ids = arrivals.insert(fresh, now, self.store, queues, may_hit=True)
            if caller is not None:
                self._callers.tie(ids, caller)
            if ids:
                self.store.ring_for((spec.queue_name, spec.kind, spec.priority or 0) for spec in fresh)
            enqueued = arrivals.named(answers, ids)
            if request is not None:
                requests.answer(self.store, request, enqueued, token)
            failpoint("enqueue.before_commit")
        failpoint("enqueue.after_commit")
        self._known_queues.update(spec.queue_name for spec in fresh)
        self._defaults = queues.defaults, now
        return enqueued

    def enqueue_in(self, tx: object, specs: Sequence[Spec]) -> list[Enqueued]:
        """All of them, in order, are part of the transaction that is open on the caller's connection, or none is."""
        for spec in specs:
            check_spec(spec)
        from .guests import Guest  # which few need

        guest = Guest(self.store, self.database_id, tx)
        return guest.enqueue(specs, now=self.clock(), add_queues=self._settle_queues) if specs else []

    def check_lendable(self) -> None:
        """A caller's connection can lead to this queue."""
        self.store.check_lendable()

    def _add_queues(self, names: set[str], now: int) -> None:
        for name in names - self._known_queues:
            self.store.ask("add_queue", name=name, now=now)

    def _settle_queues(self, names: set[str], now: int) -> None:
        """Outside of a transaction: they are there for good."""
        self._add_queues(names, now)
        self._known_queues.update(names)

    # ── settings ───────────────────────────────────────────────────────────────────────────────────────────────────

    def stored_settings(self) -> dict[str, str]:
        return {key: value for key, value in self.store.ask("config") if key in config.SETTINGS}

    def settings(self) -> dict[str, Any]:
        """Every setting's value as this process sees it."""
        return config.effective(self.stored_settings(), os.environ)

    @repeated
    def set_setting(self, name: str, text: str) -> tuple[str, Any]:
        """The setting holds for everything that is enqueued or started from now on."""
        key, value = config.parse(name, text)
        with writing(self.store):
            stored = self.stored_settings() | {key: text.strip()}
            _check_together(config.effective(stored, {}))
            self.store.ask("set_config", key=key, value=text.strip())
            failpoint("setting.before_commit")
        self._defaults = None, 0
        return key, value

    @repeated
    def unset_setting(self, name: str) -> str:
        key = config.find(name).name
        with writing(self.store):
            self.store.ask("unset_config", key=key)
            _check_together(config.effective(self.stored_settings(), {}))
            failpoint("unsetting.before_commit")
        self._defaults = None, 0
        return key

    def close(self) -> None:
        self._bell.close()
        self.store.dialect.close()


def _check_together(settings: dict[str, Any]) -> None:
    """InvalidInput when single settings are fine but contradict each other."""
    lease_s, beat_s = settings["lock_lease_seconds"], settings["heartbeat_seconds"]
    if lease_s < 3 * beat_s:
        raise InvalidInput(
            f"lock_lease_seconds ({lease_s:g}) must be at least three times heartbeat_seconds ({beat_s:g}); "
            "change the other one first"
        )
