"""What is said over HTTP: one table of endpoints for the server, the client, the OpenAPI document and the tests.

A body is msgpack between Coveys and JSON for everybody else; both have the same fields. A breaking change gets a new
prefix, so an old pool and a new server know at once that they do not fit.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from .. import errors
from . import bodies
from .model import Child, Enqueued
from .tokens import Role
from .turn import LostPool, PoolInfo, Registered, Tie, Turn
from .view import (
    Attempt,
    Branch,
    Change,
    Edit,
    Event,
    Filter,
    JobView,
    LiveOutput,
    Page,
    PoolView,
    QueueView,
    Status,
    Why,
)

PROTOCOL = 1
JSON, MSGPACK = "application/json", "application/msgpack"
MAX_BODY = 2 << 20
MAX_BATCH = 64 << 20  # of specs in one enqueue: all of them are stored, or none
MAX_TURN = 256 << 20  # outputs of up to 2 MiB each travel in it

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Endpoint(Struct, frozen=True, kw_only=True):
    name: str
    method: Method
    path: str
    about: str
    role: Role | None  # which a token must have or include; None: open to everybody
    gives: Any = bodies.Nothing
    takes: Any = None  # the body
    query: Any = None
    scoped: bool = True  # whether a token for some queues only may use it: the server then looks at each queue
    limit: int = MAX_BODY
    stream: bool = False  # server-sent events
    waits: bool = False  # whether it may be answered much later: who hangs up meanwhile gives his place free at once
    at_once: bool = False  # of a pool, which has its own pace: a client does not try it again by itself
    looks: bool = False  # whether it only looks, perhaps for long: apart from all else then, and not for ever
    repeatable: bool | None = None  # whether asking twice does no more than asking once; None: as the method says

    @property
    def unsafe(self) -> bool:
        """Whether it changes something, or could in the eyes of a browser."""
        return self.method != "GET"

    @property
    def repeats(self) -> bool:
        return self.method != "POST" if self.repeatable is None else self.repeatable


def _endpoint(name: str, place: str, role: Role | None, about: str, **more: Any) -> Endpoint:
    method, path = place.split()
    return Endpoint(name=name, method=cast(Method, method), path=path, role=role, about=about, **more)


# fmt: off
_table = (
    _endpoint("health", "GET /health", None, "Ready or not.", gives=bodies.Health),
    _endpoint("livez", "GET /livez", None, "The server answers; the queue is not asked.", gives=bodies.Alive),
    _endpoint("readyz", "GET /readyz", None, "The queue can be used, or why not.", gives=bodies.Ready),
    _endpoint("openapi", "GET /openapi.json", None, "This document.", gives=dict),
    _endpoint("page", "GET /docs", None, "This document as a page.", gives=str),
    _endpoint("server", "GET /v1/server", "read", "Whose server this is.", gives=bodies.ServerInfo),
    # The worker protocol.
    _endpoint("register", "POST /v1/pools", "worker", "A pool is known and may take turns.",
              takes=PoolInfo, gives=Registered, repeatable=True),
    _endpoint("turn", "POST /v1/pools/{pool}/turn", "worker", "Reports in, claims out. Never blocks for work.",
              takes=Turn, gives=bodies.Answered, limit=MAX_TURN, at_once=True),
    _endpoint("wait", "POST /v1/pools/{pool}/wait", "worker",
              "Answers once something may have changed for this pool, or after the time-out.",
              takes=bodies.Wait, gives=bodies.Woken, repeatable=True, waits=True, at_once=True),
    _endpoint("leave", "POST /v1/pools/{pool}/leave", "worker",
              "The pool is forgotten; what it still held is pending again.",
              repeatable=True),
    _endpoint("lost_pools", "GET /v1/pools/beats", "worker", "All pools as another pool judges them.",
              gives=list[LostPool]),
    _endpoint("orphaned_pools", "GET /v1/pools/orphaned", "worker",
              "Pools that still hold jobs although they are not known any more.",
              gives=list[int]),
    _endpoint("reap", "POST /v1/pools/{pool}/reap", "worker",
              "Hands back what a dead pool held, unless it has beaten since.",
              takes=bodies.Reap, gives=bodies.Reaped, scoped=False, repeatable=True),
    _endpoint("callers", "GET /v1/callers", "worker",
              "Jobs that shall end with whoever asked for them, and who that is.",
              gives=list[Tie]),
    _endpoint("abandon", "POST /v1/callers/{ref}/abandon", "worker",
              "Cancels the job of a caller who is gone, unless he has beaten since.",
              takes=bodies.Abandon, gives=bodies.Abandoned, repeatable=True),
    # One job at a time.
    _endpoint("claim", "POST /v1/jobs/claim", "worker",
              "One job with a lease of its own, for a worker in any language. With a request it can be asked again.",
              takes=bodies.ClaimAsk, query=bodies.WaitParameter, gives=bodies.Claimed, waits=True),
    _endpoint("heartbeat", "POST /v1/jobs/{ref}/heartbeat", "worker",
              "The lease begins anew; says whether the run must be stopped: cancelled, or out of time.",
              takes=bodies.Holding, gives=bodies.Still, repeatable=True),
    _endpoint("complete", "POST /v1/jobs/{ref}/complete", "worker",
              "The run succeeded. The same again is answered the same.",
              takes=bodies.Complete, gives=bodies.Outcome, limit=MAX_TURN, repeatable=True),
    _endpoint("fail", "POST /v1/jobs/{ref}/fail", "worker", "The run failed; the job's own policy says what follows.",
              takes=bodies.Fail, gives=bodies.Outcome, limit=MAX_TURN, repeatable=True),
    _endpoint("release", "POST /v1/jobs/{ref}/release", "worker", "The job is handed back, at no cost to its attempts.",
              takes=bodies.Holding, gives=bodies.Released),
    _endpoint("spawn", "POST /v1/jobs/{ref}/spawn", "worker",
              "Jobs that come into being with the run's success, and only then.",
              takes=bodies.SpawnAsk, gives=bodies.Spawned, limit=MAX_BATCH),
    _endpoint("write_output", "POST /v1/jobs/{ref}/output", "worker",
              "More of what the run writes; it can be followed at once.",
              takes=bodies.OutputAsk),
    _endpoint("failed_siblings", "POST /v1/jobs/{ref}/failed-siblings", "worker",
              "Of a child: the others of its parent that have died or been cancelled by now.",
              takes=bodies.Holding, gives=list[Child], repeatable=True, at_once=True),
    # Producers and people.
    _endpoint("enqueue_jobs", "POST /v1/jobs", "client",
              "Jobs as objects: command or task, and what `covey enqueue` takes.",
              takes=bodies.EnqueueJobs, gives=list[Enqueued], limit=MAX_BATCH, repeatable=True),
    _endpoint("enqueue", "POST /v1/jobs/specs", "client", "Jobs as Covey's own clients write them.",
              takes=bodies.Enqueue, gives=list[Enqueued], limit=MAX_BATCH, repeatable=True),
    _endpoint("still_here", "POST /v1/callers/{ref}/beat", "client", "The caller of that job still waits for it.",
              gives=bodies.Tied, repeatable=True),
    _endpoint("let_go", "DELETE /v1/callers/{ref}", "client", "The job ends with nobody any longer."),
    _endpoint("list_jobs", "GET /v1/jobs", "read", "Jobs, newest first.",
              query=bodies.JobsQuery, gives=Page, looks=True),
    _endpoint("jobs", "POST /v1/jobs/find", "read", "The same with a filter of any size.",
              takes=Filter, gives=Page, looks=True, repeatable=True),
    _endpoint("wait_for", "POST /v1/jobs/wait", "read",
              "Answers once all (or any) of these jobs have ended, or after the time-out.",
              takes=bodies.WaitFor, gives=bodies.Ended, repeatable=True, waits=True),
    _endpoint("cancel", "POST /v1/jobs/cancel", "client", "None of them runs any more.",
              takes=bodies.Refs, gives=list[Change], repeatable=True),
    _endpoint("retry", "POST /v1/jobs/retry", "client", "They run again.", takes=bodies.RetryAsk, gives=list[Change]),
    _endpoint("remove", "POST /v1/jobs/remove", "client", "They are gone, with all that is known of them.",
              takes=bodies.RemoveAsk, gives=list[Change]),
    _endpoint("job", "GET /v1/jobs/{ref}", "read", "One job.", gives=JobView),
    _endpoint("edit", "PATCH /v1/jobs/{ref}", "client", "A job that has not started has the new settings.",
              takes=Edit, gives=JobView),
    _endpoint("history", "GET /v1/jobs/{ref}/history", "read",
              "Attempts that had something to say, and what they wrote.",
              gives=list[Attempt], looks=True),
    _endpoint("output", "GET /v1/jobs/{ref}/output", "read", "What the running attempt has written so far.",
              query=bodies.OutputQuery, gives=LiveOutput),
    _endpoint("why", "GET /v1/jobs/{ref}/why", "read", "Why the job is where it is, and what would move it.",
              gives=Why, looks=True),
    _endpoint("events", "GET /v1/jobs/{ref}/events", "read", "What happened to it, newest first.",
              query=bodies.EventsQuery, gives=list[Event], looks=True),
    _endpoint("tree", "GET /v1/jobs/{ref}/tree", "read", "The job and one page of its children.",
              query=bodies.TreeQuery, gives=Branch, looks=True),
    _endpoint("all_events", "GET /v1/events", "read", "What happened lately.",
              query=bodies.EventsQuery, gives=list[Event], scoped=False, looks=True),
    _endpoint("stream", "GET /v1/stream", "read",
              "Changes as server-sent events: of these jobs until they have ended, or of the whole queue.",
              query=bodies.StreamQuery, gives=str, stream=True, looks=True),
    _endpoint("status", "GET /v1/status", "read", "The queue at a glance.", gives=Status, scoped=False, looks=True),
    _endpoint("queues", "GET /v1/queues", "read", "All queues.", gives=list[QueueView], looks=True),
    _endpoint("set_queue", "PATCH /v1/queues/{queue}", "admin", "How the queue is worked from now on.",
              takes=bodies.QueueRules),
    _endpoint("pause", "POST /v1/queues/{queue}/pause", "admin", "Nothing more of it is started.",
              takes=bodies.Pause, repeatable=True),
    _endpoint("resume", "POST /v1/queues/{queue}/resume", "admin", "It goes on.", repeatable=True),
    _endpoint("pool_views", "GET /v1/pools", "read", "Pools and their workers.",
              gives=list[PoolView], scoped=False, looks=True),
    _endpoint("pool_events", "GET /v1/pools/events", "read", "What happened to pools and workers.",
              query=bodies.PoolEventsQuery, gives=list[Event], scoped=False, looks=True),
    _endpoint("stop_pools", "POST /v1/pools/stop", "admin", "These pools finish what they run and leave.",
              takes=bodies.StopPools, scoped=False, repeatable=True),
    _endpoint("settings", "GET /v1/config", "read", "Every setting, and what is stored of them.",
              gives=bodies.Settings),
    _endpoint("set_setting", "PUT /v1/config/{name}", "admin", "The setting holds from now on.",
              takes=bodies.SettingText, gives=bodies.SettingValue, scoped=False),
    _endpoint("unset_setting", "DELETE /v1/config/{name}", "admin", "Back to the default.",
              gives=bodies.SettingValue, scoped=False),
)
# fmt: on
ENDPOINTS: dict[str, Endpoint] = {endpoint.name: endpoint for endpoint in _table}

# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────

# The most special first: an error is what the first of them says that fits.
CODES: dict[str, tuple[type[errors.CoveyError], int]] = {
    "too_large": (errors.TooLarge, 413),
    "invalid_input": (errors.InvalidInput, 400),
    "not_found": (errors.NotFound, 404),
    "duplicate": (errors.Duplicate, 409),
    "still_stopping": (errors.StillStopping, 409),
    "spawn_refused": (errors.SpawnRefused, 409),
    "refused": (errors.Refused, 409),
    "busy": (errors.Busy, 503),
    "undone": (errors.Undone, 503),
    "unknown": (errors.Unknown, 503),
    "no_queue": (errors.NoQueue, 503),
    "schema": (errors.SchemaError, 503),
    "unreachable": (errors.Unreachable, 503),
    "too_long": (errors.TooLong, 504),
    "store": (errors.StoreError, 503),
    "lease_lost": (errors.LeaseLost, 409),
    "unauthorized": (errors.Unauthorized, 401),
    "forbidden": (errors.Forbidden, 403),
    "failed": (errors.CoveyError, 500),
}


def failure_of(error: errors.CoveyError) -> tuple[int, bodies.Failed]:
    """(HTTP status, what the other side is told)."""
    code = next(code for code, (kind, _) in CODES.items() if isinstance(error, kind))
    return CODES[code][1], bodies.Failed(bodies.Failure(code, str(error), getattr(error, "job_id", None) or None))


def error_of(failure: bodies.Failure) -> errors.CoveyError:
    """The error as if it had been raised here. A code of a newer server is a plain one."""
    kind = CODES.get(failure.code, CODES["failed"])[0]
    if kind is errors.Duplicate:
        return errors.Duplicate(failure.message, failure.job_id or 0)
    return kind(failure.message)
