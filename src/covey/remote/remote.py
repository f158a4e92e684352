"""The queue behind a server: the same verbs as the local engine, each one request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..core import bodies, check, endpoints
from ..core.endpoints import ENDPOINTS, MSGPACK, Endpoint
from ..core.model import KINDS, Child, Enqueued, Kind, Spec
from ..core.turn import Caller, LostPool, PoolInfo, Registered, Reply, Tie, Turn
from ..core.view import (
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
from ..errors import CoveyError, InvalidInput, Refused, TooLarge, Unreachable
from .polling import Poller
from .transport import Answer, NotSent, Sockets, Transport

ANSWER_S = 30.0  # how long a server may take over an ordinary request
PATIENCE_S = 5.0  # for how long a request is tried again that certainly did no harm
PAUSE_S = (0.05, 1.0)
POLL_S = 30.0  # one long poll of somebody who waits for jobs to end
FULL_S = 0.1  # a pool without a free place asks nobody for so long: mostly a place is free again by then


Ref = str | int


class Remote:
    """Everything that can be asked of one queue. Safe to share between threads; not across a fork."""

    is_served = True
    longest_wait_s = bodies.MAX_WAIT_S
    look_s = 15.0  # the server watches all pools; we only see sooner what died on our own host

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        transport: Transport | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.url = url.rstrip("/")
        self._transport = transport or Sockets(self.url)
        self._patience_s = patience_s
        self._headers = {"content-type": MSGPACK, "accept": MSGPACK}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._poller = Poller()
        self._seen: int | None = None
        self._turn = 0  # the last one that was begun
        self._kinds: tuple[Kind, ...] = KINDS
        self._tickets: dict[str, str] = {}  # a pool's name → of its registration, which was not answered yet
        self._info: bodies.ServerInfo | None = None

    @property
    def database_id(self) -> str:
        return self.server().database_id

    def server(self) -> bodies.ServerInfo:
        """Whose server this is; Refused if it speaks another protocol."""
        if self._info is None:
            info: bodies.ServerInfo = self._ask("server")
            if info.protocol != endpoints.PROTOCOL:
                raise Refused(
                    f"the server at {self.url} is Covey {info.version} and speaks protocol {info.protocol}, "
                    f"this one speaks {endpoints.PROTOCOL}; upgrade the older of the two"
                )
            self._info = info
        return self._info

    def close(self) -> None:
        self._poller.close()
        self._transport.close()
        self._poller.join()

    # ── what a pool needs ───────────────────────────────────────────────────────────────────────────────────────────

    def register(self, info: PoolInfo) -> Registered:
        """The pool is known, once: after a lost answer, however long ago, it comes again with the same ticket.

        Else the others would give up what the server wrote down for it, and end what belongs to the same process.
        """
        self._kinds, self._turn = info.kinds, 0
        ticket = info.ticket or self._tickets.setdefault(info.name, os.urandom(16).hex())
        registered: Registered = self._ask("register", replace(info, ticket=ticket))
        self._tickets.pop(info.name, None)
        return registered

    def turn(self, turn: Turn) -> Reply:
        self._turn = turn.number
        try:
            answered: bodies.Answered = self._ask("turn", turn, pool=turn.pool)
        except Unwritable:  # a run may report anything, and must be heard
            told = replace(turn, reports=[check.storable(report) for report in turn.reports])
            answered = self._ask("turn", told, pool=turn.pool)
        self._seen = answered.seen
        return answered.reply

    def wait(
        self, pool: int, queues: tuple[str, ...] | None, timeout_s: float, kinds: tuple[Kind, ...] | None = None
    ) -> bool:
        if queues == ():
            if self._poller.nap(min(timeout_s, FULL_S)):
                return True
            timeout_s -= FULL_S
            if timeout_s <= 0:
                return False

        def ask(left_s: float) -> bodies.Woken:
            turn = self._turn
            asked = bodies.Wait(
                queues=queues,
                kinds=self._kinds if kinds is None else kinds,
                timeout_s=min(left_s, bodies.MAX_WAIT_S),
                seen=self._seen,
                turn=turn,
            )
            woken: bodies.Woken = self._ask("wait", asked, pool=pool, timeout_s=left_s + ANSWER_S)
            if turn == self._turn:  # else a turn has begun meanwhile, and it may not have seen what rang since
                self._seen = woken.seen
            return woken

        return self._poller.wait(ask, timeout_s)

    def wake(self) -> None:
        self._poller.wake()

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        """A turn is one request here: its answer is waited for, and nothing else is done."""
        return False

    def pools(self) -> list[LostPool]:
        found: list[LostPool] = self._ask("lost_pools")
        return found

    def orphaned_pools(self) -> list[int]:
        found: list[int] = self._ask("orphaned_pools")
        return found

    def reap(self, pool: int, beat: int, reason: str | None = None) -> int:
        reaped: bodies.Reaped = self._ask("reap", bodies.Reap(beat=beat, reason=reason), pool=pool)
        return reaped.jobs

    def callers(self) -> list[Tie]:
        found: list[Tie] = self._ask("callers")
        return found

    def abandon(self, job: int, beat: int) -> bool:
        abandoned: bodies.Abandoned = self._ask("abandon", bodies.Abandon(beat=beat), ref=job)
        return abandoned.cancelled

    def show_output(
        self, pool: int, job: int, fence: int, stdout: str, stderr: str, *, info: str | None = None
    ) -> None:
        told = bodies.OutputAsk(pool=pool, fence=fence, stdout=stdout, stderr=stderr)
        if info is not None:
            told.info = info
        self._ask("write_output", told, ref=job)

    def failed_siblings(self, pool: int, job: int, fence: int) -> list[Child]:
        found: list[Child] = self._ask("failed_siblings", bodies.Holding(pool=pool, fence=fence), ref=job)
        return found

    def leave(self, pool: int) -> None:
        self._ask("leave", pool=pool)

    # ── what a producer needs ───────────────────────────────────────────────────────────────────────────────────────

    def enqueue(
        self, specs: Sequence[Spec], *, request: str | None = None, caller: Caller | None = None
    ) -> list[Enqueued]:
        """All of them are on disk, in order, or none is. An answer that was lost is asked for again, not doubled."""
        for spec in specs:
            check.check_spec(spec)
        if not specs:
            return []
        if len(specs) > bodies.MOST_JOBS:
            raise TooLarge(
                f"{len(specs):,} jobs in one enqueue, a server takes {bodies.MOST_JOBS:,}; send them in parts"
            )
        if request is not None:
            check.check_text(request, "request", most=200)
        if caller is not None:
            check.check_caller(caller)
        name = os.urandom(16).hex() if request is None else request
        made: list[Enqueued] = self._ask("enqueue", bodies.Enqueue(specs=list(specs), request=name, caller=caller))
        return made

    def still_here(self, job: int) -> bool:
        answer: bodies.Tied = self._ask("still_here", ref=job)
        return answer.tied

    def let_go(self, job: int) -> None:
        self._ask("let_go", ref=job)

    def job(self, ref: Ref) -> JobView:
        view: JobView = self._ask("job", ref=ref)
        return view

    def jobs(self, wanted: Filter) -> Page:
        check.check_filter(queue=wanted.queue, task=wanted.task, batch=wanted.batch)
        page: Page = self._ask("jobs", wanted)
        return page

    def history(self, ref: Ref) -> list[Attempt]:
        found: list[Attempt] = self._ask("history", ref=ref)
        return found

    def wait_for(self, ids: Sequence[int], timeout_s: float | None, *, any_of: bool = False) -> bool:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - time.monotonic()))
            asked = bodies.WaitFor(ids=list(ids), any_of=any_of, timeout_s=left_s)
            answer: bodies.Ended = self._ask("wait_for", asked, timeout_s=left_s + ANSWER_S)
            if answer.ended:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def output(self, ref: Ref, *, fence: int | None = None, out: int = 0, err: int = 0) -> LiveOutput:
        """What the running attempt has written beyond these places."""
        live: LiveOutput = self._ask("output", query=bodies.OutputQuery(fence=fence, out=out, err=err), ref=ref)
        return live

    def cancel(self, refs: Sequence[Ref]) -> list[Change]:
        return self._changes("cancel", bodies.Refs(refs=list(refs)))

    def retry(self, refs: Sequence[Ref], *, again: bool = False, all: bool = False) -> list[Change]:
        return self._changes("retry", bodies.RetryAsk(refs=list(refs), again=again, all=all))

    def edit(self, ref: Ref, edit: Edit) -> JobView:
        view: JobView = self._ask("edit", edit, ref=ref)
        return view

    def remove(self, refs: Sequence[Ref], *, force: bool = False) -> list[Change]:
        return self._changes("remove", bodies.RemoveAsk(refs=list(refs), force=force))

    def why(self, ref: Ref) -> Why:
        why: Why = self._ask("why", ref=ref)
        return why

    def events(self, ref: Ref | None = None, limit: int = 100) -> list[Event]:
        query = bodies.EventsQuery(limit=limit)
        found: list[Event] = (
            self._ask("all_events", query=query) if ref is None else self._ask("events", query=query, ref=ref)
        )
        return found

    def pool_events(self, pool: int | None = None, *, after: int = 0, limit: int = 100) -> list[Event]:
        query = bodies.PoolEventsQuery(pool=pool, after=after, limit=limit)
        found: list[Event] = self._ask("pool_events", query=query)
        return found

    def status(self) -> Status:
        status: Status = self._ask("status")
        return status

    def queues(self) -> list[QueueView]:
        found: list[QueueView] = self._ask("queues")
        return found

    def pause(self, queue: str, for_s: float | None = None) -> None:
        check.check_queue(queue)
        self._ask("pause", bodies.Pause(for_s=for_s), queue=queue)

    def resume(self, queue: str) -> None:
        check.check_queue(queue)
        self._ask("resume", queue=queue)

    def set_queue(
        self,
        queue: str,
        *,
        serial: bool | UnsetType = UNSET,
        concurrency: int | UnsetType | None = UNSET,
        max_depth: int | UnsetType = UNSET,
    ) -> None:
        check.check_queue(queue)
        rules = bodies.QueueRules(serial=serial, concurrency=concurrency, max_depth=max_depth)
        self._ask("set_queue", rules, queue=queue)

    def tree(self, ref: Ref, limit: int = 50, after: int | None = None) -> Branch:
        branch: Branch = self._ask("tree", query=bodies.TreeQuery(limit=limit, after=after), ref=ref)
        return branch

    def pool_views(self) -> list[PoolView]:
        found: list[PoolView] = self._ask("pool_views")
        return found

    def stop_pools(self, pools: Sequence[int]) -> None:
        self._ask("stop_pools", bodies.StopPools(pools=list(pools)))

    def settings(self) -> dict[str, Any]:
        settings: bodies.Settings = self._ask("settings")
        return settings.effective

    def stored_settings(self) -> dict[str, str]:
        settings: bodies.Settings = self._ask("settings")
        return settings.stored

    def set_setting(self, name: str, text: str) -> tuple[str, Any]:
        answer: bodies.SettingValue = self._ask("set_setting", bodies.SettingText(value=text), name=name)
        return answer.name, answer.value

    def unset_setting(self, name: str) -> str:
        answer: bodies.SettingValue = self._ask("unset_setting", name=name)
        return answer.name

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _changes(self, name: str, asked: bodies.Refs | bodies.RetryAsk | bodies.RemoveAsk) -> list[Change]:
        check.check_refs(asked.refs)
        made: list[Change] = self._ask(name, asked)
        return made

    def _ask(
        self,
        verb: str,
        body: msgspec.Struct | None = None,
        /,
        *,
        query: msgspec.Struct | None = None,
        timeout_s: float = ANSWER_S,
        **places: Any,
    ) -> Any:
        endpoint = ENDPOINTS[verb]
        check.check_refs([places["ref"]] if "ref" in places else ())
        target = endpoint.path.format(**{key: _quoted(key, str(value)) for key, value in places.items()})
        if query is not None:
            target += _query_string(query)
        data = None if body is None else encode(body)
        if data is not None and len(data) > endpoint.limit:
            raise TooLarge(f"{len(data):,} bytes for the server, the limit is {endpoint.limit:,}; send it in parts")
        answer = self._send(endpoint, target, data, timeout_s)
        if answer.status == 200:
            return decode(endpoint, answer)
        raise _error(answer, self.url)

    def _send(self, endpoint: Endpoint, target: str, data: bytes | None, timeout_s: float) -> Answer:
        """The answer. What does no harm twice is tried again for a while: servers are restarted now and then."""
        deadline = time.monotonic() + (0.0 if endpoint.at_once else self._patience_s)
        pause_s = PAUSE_S[0]
        while True:
            try:
                return self._transport.request(endpoint.method, target, data, self._headers, timeout_s)
            except Unreachable as error:
                harmless = isinstance(error, NotSent) or endpoint.repeats
                if not harmless or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S[1])


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}


class Unwritable(InvalidInput):
    """Nothing that can be sent: half a character, or a number of more than 64 bits."""


def encode(body: msgspec.Struct) -> bytes:
    try:
        return _encoder.encode(body)
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.start + 20]
        raise Unwritable(f"cannot be sent to the server: {near!r} has a lone surrogate, which is not text") from None
    except OverflowError as error:
        raise Unwritable(f"cannot be sent to the server: {error}") from None


def _quoted(what: str, text: str) -> str:
    if not check.is_unicode(text):
        raise Unwritable(f"{what} {text!r}: this is not text, and nothing here can be called that")
    return quote(text, safe="")


def decode(endpoint: Endpoint, answer: Answer) -> Any:
    decoder = _decoders.get(endpoint.name)
    if decoder is None:
        decoder = _decoders[endpoint.name] = msgspec.msgpack.Decoder(endpoint.gives)
    try:
        if answer.kind != MSGPACK:
            return msgspec.json.decode(answer.body, type=endpoint.gives)
        return decoder.decode(answer.body)
    except msgspec.DecodeError as error:
        raise Refused(f"the server's answer to {endpoint.name} makes no sense here ({error}); upgrade both") from None


def _query_string(query: msgspec.Struct) -> str:
    fields = {name: value for name, value in msgspec.structs.asdict(query).items() if value is not None}
    return "?" + urlencode(fields, doseq=True) if fields else ""


def _error(answer: Answer, url: str) -> CoveyError:
    decode = msgspec.msgpack.decode if answer.kind == MSGPACK else msgspec.json.decode
    try:
        return endpoints.error_of(decode(answer.body, type=bodies.Failed).error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Refused(f"what answers at {url} is not a Covey server (HTTP {answer.status}); check the port")
