"""What is said over HTTP: one table of endpoints for the server, the client, the OpenAPI document and the tests.

A body is msgpack between Coveys and JSON for everybody else; both have the same fields. A breaking change gets a new
prefix, so an old pool and a new server know at once that they do not fit.
"""

from __future__ import annotations

from typing import Any, Literal

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
    looks: bool = False  # whether it only looks, perhaps for long: apart from all else then, and not for ever
    repeatable: bool | None = None  # whether asking twice does no more than asking once; None: as the method says

    @property
    def unsafe(self) -> bool:
        """Whether it changes something, or could in the eyes of a browser."""
        return self.method != "GET"

    @property
    def repeats(self) -> bool:
        return self.method != "POST" if self.repeatable is None else self.repeatable


def _table(*endpoints: Endpoint) -> dict[str, Endpoint]:
    return {endpoint.name: endpoint for endpoint in endpoints}


ENDPOINTS: dict[str, Endpoint] = _table(
    Endpoint(name="health", method="GET", path="/health", about="Ready or not.", role=None, gives=bodies.Health),
    Endpoint(
        name="livez",
        method="GET",
        path="/livez",
        about="The server answers; the queue is not asked.",
        role=None,
        gives=bodies.Alive,
    ),
    Endpoint(
        name="readyz",
        method="GET",
        path="/readyz",
        about="The queue can be used, or why not.",
        role=None,
        gives=bodies.Ready,
    ),
    Endpoint(name="openapi", method="GET", path="/openapi.json", about="This document.", role=None, gives=dict),
    Endpoint(name="page", method="GET", path="/docs", about="This document as a page.", role=None, gives=str),
    Endpoint(
        name="server",
        method="GET",
        path="/v1/server",
        about="Whose server this is.",
        role="read",
        gives=bodies.ServerInfo,
    ),
    # The worker protocol.
    Endpoint(
        name="register",
        method="POST",
        repeatable=True,
        path="/v1/pools",
        about="A pool is known and may take turns.",
        role="worker",
        takes=PoolInfo,
        gives=Registered,
    ),
    Endpoint(
        name="turn",
        method="POST",
        path="/v1/pools/{pool}/turn",
        about="Reports in, claims out. Never blocks for work.",
        role="worker",
        takes=Turn,
        gives=bodies.Answered,
        limit=MAX_TURN,
    ),
    Endpoint(
        name="wait",
        method="POST",
        repeatable=True,
        path="/v1/pools/{pool}/wait",
        about="Answers once something may have changed for this pool, or after the time-out.",
        role="worker",
        takes=bodies.Wait,
        gives=bodies.Woken,
    ),
    Endpoint(
        name="leave",
        method="POST",
        repeatable=True,
        path="/v1/pools/{pool}/leave",
        about="The pool is forgotten; what it still held is pending again.",
        role="worker",
    ),
    Endpoint(
        name="lost_pools",
        method="GET",
        path="/v1/pools/beats",
        about="All pools as another pool judges them.",
        role="worker",
        gives=list[LostPool],
    ),
    Endpoint(
        name="orphaned_pools",
        method="GET",
        path="/v1/pools/orphaned",
        about="Pools that still hold jobs although they are not known any more.",
        role="worker",
        gives=list[int],
    ),
    Endpoint(
        name="reap",
        method="POST",
        repeatable=True,
        path="/v1/pools/{pool}/reap",
        about="Hands back what a dead pool held, unless it has beaten since.",
        role="worker",
        takes=bodies.Reap,
        gives=bodies.Reaped,
        scoped=False,
    ),
    Endpoint(
        name="callers",
        method="GET",
        path="/v1/callers",
        about="Jobs that shall end with whoever asked for them, and who that is.",
        role="worker",
        gives=list[Tie],
    ),
    Endpoint(
        name="abandon",
        method="POST",
        repeatable=True,
        path="/v1/callers/{ref}/abandon",
        about="Cancels the job of a caller who is gone, unless he has beaten since.",
        role="worker",
        takes=bodies.Abandon,
        gives=bodies.Abandoned,
    ),
    # One job at a time.
    Endpoint(
        name="claim",
        method="POST",
        path="/v1/jobs/claim",
        about="One job with a lease of its own, for a worker in any language. With a request it can be asked again.",
        role="worker",
        takes=bodies.ClaimAsk,
        query=bodies.WaitParameter,
        gives=bodies.Claimed,
    ),
    Endpoint(
        name="heartbeat",
        method="POST",
        repeatable=True,
        path="/v1/jobs/{ref}/heartbeat",
        about="The lease begins anew; says whether the run must be stopped: cancelled, or out of time.",
        role="worker",
        takes=bodies.Holding,
        gives=bodies.Still,
    ),
    Endpoint(
        name="complete",
        method="POST",
        repeatable=True,
        path="/v1/jobs/{ref}/complete",
        about="The run succeeded. The same again is answered the same.",
        role="worker",
        takes=bodies.Complete,
        gives=bodies.Outcome,
        limit=MAX_TURN,
    ),
    Endpoint(
        name="fail",
        method="POST",
        repeatable=True,
        path="/v1/jobs/{ref}/fail",
        about="The run failed; the job's own policy says what follows.",
        role="worker",
        takes=bodies.Fail,
        gives=bodies.Outcome,
        limit=MAX_TURN,
    ),
    Endpoint(
        name="release",
        method="POST",
        path="/v1/jobs/{ref}/release",
        about="The job is handed back, at no cost to its attempts.",
        role="worker",
        takes=bodies.Holding,
        gives=bodies.Released,
    ),
    Endpoint(
        name="spawn",
        method="POST",
        path="/v1/jobs/{ref}/spawn",
        about="Jobs that come into being with the run's success, and only then.",
        role="worker",
        takes=bodies.SpawnAsk,
        gives=bodies.Spawned,
        limit=MAX_BATCH,
    ),
    Endpoint(
        name="write_output",
        method="POST",
        path="/v1/jobs/{ref}/output",
        about="More of what the run writes; it can be followed at once.",
        role="worker",
        takes=bodies.OutputAsk,
    ),
    Endpoint(
        name="failed_siblings",
        method="POST",
        repeatable=True,
        path="/v1/jobs/{ref}/failed-siblings",
        about="Of a child: the others of its parent that have died or been cancelled by now.",
        role="worker",
        takes=bodies.Holding,
        gives=list[Child],
    ),
    # Producers and people.
    Endpoint(
        name="enqueue_jobs",
        method="POST",
        repeatable=True,
        path="/v1/jobs",
        about="Jobs as objects: command or task, and what `covey enqueue` takes.",
        role="client",
        takes=bodies.EnqueueJobs,
        gives=list[Enqueued],
        limit=MAX_BATCH,
    ),
    Endpoint(
        name="enqueue",
        method="POST",
        repeatable=True,
        path="/v1/jobs/specs",
        about="Jobs as Covey's own clients write them.",
        role="client",
        takes=bodies.Enqueue,
        gives=list[Enqueued],
        limit=MAX_BATCH,
    ),
    Endpoint(
        name="still_here",
        method="POST",
        repeatable=True,
        path="/v1/callers/{ref}/beat",
        about="The caller of that job still waits for it.",
        role="client",
        gives=bodies.Tied,
    ),
    Endpoint(
        name="let_go",
        method="DELETE",
        path="/v1/callers/{ref}",
        about="The job ends with nobody any longer.",
        role="client",
    ),
    Endpoint(
        name="list_jobs",
        method="GET",
        path="/v1/jobs",
        about="Jobs, newest first.",
        role="read",
        query=bodies.JobsQuery,
        gives=Page,
        looks=True,
    ),
    Endpoint(
        name="jobs",
        method="POST",
        repeatable=True,
        path="/v1/jobs/find",
        about="The same with a filter of any size.",
        role="read",
        takes=Filter,
        gives=Page,
        looks=True,
    ),
    Endpoint(
        name="wait_for",
        method="POST",
        repeatable=True,
        path="/v1/jobs/wait",
        about="Answers once all (or any) of these jobs have ended, or after the time-out.",
        role="read",
        takes=bodies.WaitFor,
        gives=bodies.Ended,
    ),
    Endpoint(
        name="cancel",
        method="POST",
        repeatable=True,
        path="/v1/jobs/cancel",
        about="None of them runs any more.",
        role="client",
        takes=bodies.Refs,
        gives=list[Change],
    ),
    Endpoint(
        name="retry",
        method="POST",
        path="/v1/jobs/retry",
        about="They run again.",
        role="client",
        takes=bodies.RetryAsk,
        gives=list[Change],
    ),
    Endpoint(
        name="remove",
        method="POST",
        path="/v1/jobs/remove",
        about="They are gone, with all that is known of them.",
        role="client",
        takes=bodies.RemoveAsk,
        gives=list[Change],
    ),
    Endpoint(name="job", method="GET", path="/v1/jobs/{ref}", about="One job.", role="read", gives=JobView),
    Endpoint(
        name="edit",
        method="PATCH",
        path="/v1/jobs/{ref}",
        about="A job that has not started has the new settings.",
        role="client",
        takes=Edit,
        gives=JobView,
    ),
    Endpoint(
        name="history",
        method="GET",
        path="/v1/jobs/{ref}/history",
        about="Attempts that had something to say, and what they wrote.",
        role="read",
        gives=list[Attempt],
        looks=True,
    ),
    Endpoint(
        name="output",
        method="GET",
        path="/v1/jobs/{ref}/output",
        about="What the running attempt has written so far.",
        role="read",
        query=bodies.OutputQuery,
        gives=LiveOutput,
    ),
    Endpoint(
        name="why",
        method="GET",
        path="/v1/jobs/{ref}/why",
        about="Why the job is where it is, and what would move it.",
        role="read",
        gives=Why,
        looks=True,
    ),
    Endpoint(
        name="events",
        method="GET",
        path="/v1/jobs/{ref}/events",
        about="What happened to it, newest first.",
        role="read",
        query=bodies.EventsQuery,
        gives=list[Event],
        looks=True,
    ),
    Endpoint(
        name="tree",
        method="GET",
        path="/v1/jobs/{ref}/tree",
        about="The job and one page of its children.",
        role="read",
        query=bodies.TreeQuery,
        gives=Branch,
        looks=True,
    ),
    Endpoint(
        name="all_events",
        method="GET",
        path="/v1/events",
        about="What happened lately.",
        role="read",
        query=bodies.EventsQuery,
        gives=list[Event],
        scoped=False,
        looks=True,
    ),
    Endpoint(
        name="stream",
        method="GET",
        path="/v1/stream",
        about="Changes as server-sent events: of these jobs until they have ended, or of the whole queue.",
        role="read",
        query=bodies.StreamQuery,
        gives=str,
        stream=True,
        looks=True,
    ),
    Endpoint(
        name="status",
        method="GET",
        path="/v1/status",
        about="The queue at a glance.",
        role="read",
        gives=Status,
        scoped=False,
        looks=True,
    ),
    Endpoint(
        name="queues",
        method="GET",
        path="/v1/queues",
        about="All queues.",
        role="read",
        gives=list[QueueView],
        looks=True,
    ),
    Endpoint(
        name="set_queue",
        method="PATCH",
        path="/v1/queues/{queue}",
        about="How the queue is worked from now on.",
        role="admin",
        takes=bodies.QueueRules,
    ),
    Endpoint(
        name="pause",
        method="POST",
        repeatable=True,
        path="/v1/queues/{queue}/pause",
        about="Nothing more of it is started.",
        role="admin",
        takes=bodies.Pause,
    ),
    Endpoint(
        name="resume",
        method="POST",
        repeatable=True,
        path="/v1/queues/{queue}/resume",
        about="It goes on.",
        role="admin",
    ),
    Endpoint(
        name="pool_views",
        method="GET",
        path="/v1/pools",
        about="Pools and their workers.",
        role="read",
        gives=list[PoolView],
        scoped=False,
        looks=True,
    ),
    Endpoint(
        name="pool_events",
        method="GET",
        path="/v1/pools/events",
        about="What happened to pools and workers.",
        role="read",
        query=bodies.PoolEventsQuery,
        gives=list[Event],
        scoped=False,
        looks=True,
    ),
    Endpoint(
        name="stop_pools",
        method="POST",
        repeatable=True,
        path="/v1/pools/stop",
        about="These pools finish what they run and leave.",
        role="admin",
        takes=bodies.StopPools,
        scoped=False,
    ),
    Endpoint(
        name="settings",
        method="GET",
        path="/v1/config",
        about="Every setting, and what is stored of them.",
        role="read",
        gives=bodies.Settings,
    ),
    Endpoint(
        name="set_setting",
        method="PUT",
        path="/v1/config/{name}",
        about="The setting holds from now on.",
        role="admin",
        takes=bodies.SettingText,
        gives=bodies.SettingValue,
        scoped=False,
    ),
    Endpoint(
        name="unset_setting",
        method="DELETE",
        path="/v1/config/{name}",
        about="Back to the default.",
        role="admin",
        gives=bodies.SettingValue,
        scoped=False,
    ),
)

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
