"""A server, a queue with two of everything, and a visitor who can ask anything in any words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.core.endpoints import ENDPOINTS, Endpoint
from covey.core.turn import Capacity, Turn
from covey.open import open_dialect, open_engine
from tests.kit.factories import command, pool_info
from tests.kit.http_server import Served

Headers = Sequence[tuple[str, str]]


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Which error this is; every error says so, and adds a sentence."""
        error = self.json["error"]
        assert error["message"], self
        return str(error["code"])


class Example(NamedTuple):
    """A request that succeeds if nothing is wrong with who asks."""

    path: str
    query: str = ""
    body: Any = None


class House:
    """One queue, `own`, that a limited token is for; and another, `other`, that is none of its business."""

    def __init__(self, db: Path, *, needs_token: bool, **options: Any) -> None:
        self.db = db
        self.engine = open_engine(str(db))
        self.furnish()
        self.served = Served(lambda: open_engine(str(db)), socket=False, needs_token=needs_token, **options)
        self._watch = open_dialect(str(db))
        self._tokens = 0
        self.stays = False  # whether a visitor reads a stream to its end

    def furnish(self) -> None:
        """In each queue one job runs, one waits and one was cancelled."""
        for queue in ("own", "other"):
            self.engine.set_queue(queue, concurrency=None)
            self.engine.resume(queue)
        self.jobs = {queue: self.claimed(queue) for queue in ("own", "other")}
        self.waiting = {queue: self.engine.enqueue([command(queue=queue)])[0].id for queue in ("own", "other")}
        self.ended = {queue: self.engine.enqueue([command(queue=queue)])[0].id for queue in ("own", "other")}
        self.engine.cancel(list(self.ended.values()))

    def claimed(self, queue: str) -> tuple[int, int, int]:
        """(job, pool, fence) of a job of that queue that is on loan."""
        (made,) = self.engine.enqueue([command(queue=queue)])
        pool = self.engine.register(pool_info(queue, queues=(queue,), host="http", pid=0)).pool
        turn = Turn(
            pool=pool, database_id=self.engine.database_id, number=1, wants=[Capacity((queue,), {"command": 1}, 1)]
        )
        (claim,) = self.engine.turn(turn).claims
        assert claim.id <= made.id
        return claim.id, pool, claim.fence

    def token(self, role: str, *queues: str, **options: Any) -> str:
        self._tokens += 1
        return self.engine.create_token(f"t{self._tokens}", role, queues=queues or None, **options)[1]

    def version(self) -> int:
        """Changes whenever anybody else has written to the database."""
        ((found,),) = self._watch.query("PRAGMA data_version", {})
        return int(found)

    def example(self, endpoint: Endpoint, queue: str = "own") -> Example:
        return Example(*EXAMPLES[endpoint.name](self, queue))

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Headers = (),
        host: str | None = "localhost",
    ) -> Said:
        """The answer; of a stream what comes first."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        told = [("host", host)] if host is not None else []
        told += [("authorization", f"Bearer {token}")] if token is not None else []
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in [*told, *headers]],
        }
        asked = asyncio.run_coroutine_threadsafe(self._call(scope, data), self.served._loop)
        return asked.result(30)

    def visit(self, endpoint: Endpoint, queue: str = "own", **options: Any) -> Said:
        """The example of an endpoint, asked by somebody."""
        example = self.example(endpoint, queue)
        return self.ask(endpoint.method, example.path + example.query, example.body, **options)

    async def _call(self, scope: dict[str, Any], data: bytes) -> Said:
        incoming = [{"type": "http.request", "body": data, "more_body": False}]
        sent: list[Any] = []
        heard = asyncio.Event()

        async def receive() -> Any:
            if incoming:
                return incoming.pop()
            await heard.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message.get("body") and not self.stays:
                heard.set()

        await self.served.app(scope, receive, send)
        headers = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Said(sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:]))

    def close(self) -> None:
        self.served.close()
        self._watch.close()
        self.engine.close()


@contextmanager
def open_house(db: Path, *, needs_token: bool = False, **options: Any) -> Iterator[House]:
    house = House(db, needs_token=needs_token, **options)
    try:
        yield house
    finally:
        house.close()


ROUTES = list(ENDPOINTS.values())
CLOSED = [endpoint for endpoint in ROUTES if endpoint.role is not None]

Make = Callable[[House, str], tuple[Any, ...]]


def _job(tail: str = "", query: str = "", body: Any = None) -> Make:
    return lambda house, queue: (f"/v1/jobs/{house.jobs[queue][0]}{tail}", query, body)


def _pool(tail: str, body: Any = None) -> Make:
    return lambda house, queue: (f"/v1/pools/{house.jobs[queue][1]}{tail}", "", body)


def _caller(tail: str, body: Any = None) -> Make:
    return lambda house, queue: (f"/v1/callers/{house.waiting[queue]}{tail}", "", body)


def _held(tail: str, **more: Any) -> Make:
    def make(house: House, queue: str) -> tuple[Any, ...]:
        job, pool, fence = house.jobs[queue]
        return f"/v1/jobs/{job}/{tail}", "", {"pool": pool, "fence": fence, **more}

    return make


def _waiting(path: str, **more: Any) -> Make:
    return lambda house, queue: (path, "", {"refs": [house.waiting[queue]], **more})


def _plain(path: str, query: str = "", body: Any = None) -> Make:
    return lambda house, queue: (path, query, body)


def _turn(house: House, queue: str) -> tuple[Any, ...]:
    turn = {"pool": house.jobs[queue][1], "database_id": house.engine.database_id, "number": 2}
    return f"/v1/pools/{turn['pool']}/turn", "", turn


EXAMPLES: dict[str, Make] = {
    "health": _plain("/health"),
    "livez": _plain("/livez"),
    "readyz": _plain("/readyz"),
    "openapi": _plain("/openapi.json"),
    "page": _plain("/docs"),
    "server": _plain("/v1/server"),
    "register": lambda house, queue: ("/v1/pools", "", msgspec.to_builtins(pool_info(queues=(queue,)))),
    "turn": _turn,
    "wait": _pool("/wait", {"timeout_s": 0}),
    "leave": _pool("/leave"),
    "lost_pools": _plain("/v1/pools/beats"),
    "orphaned_pools": _plain("/v1/pools/orphaned"),
    "reap": _pool("/reap", {"beat": 0}),
    "callers": _plain("/v1/callers"),
    "abandon": _caller("/abandon", {"beat": 0}),
    "still_here": _caller("/beat"),
    "let_go": _caller(""),
    "claim": lambda house, queue: ("/v1/jobs/claim", "", {"queues": [queue]}),
    "heartbeat": _held("heartbeat"),
    "release": _held("release"),
    "complete": _held("complete"),
    "fail": _held("fail", error="no luck"),
    "spawn": _held("spawn", jobs=[{"command": "true"}]),
    "write_output": _held("output", stdout="hello"),
    "failed_siblings": _held("failed-siblings"),
    "enqueue_jobs": lambda house, queue: ("/v1/jobs", "", {"jobs": [{"command": "true", "queue": queue}]}),
    "enqueue": lambda house, queue: (
        "/v1/jobs/specs",
        "",
        {"specs": [msgspec.to_builtins(command(queue=queue))]},
    ),
    "list_jobs": lambda house, queue: ("/v1/jobs", f"?queue={queue}"),
    "jobs": lambda house, queue: ("/v1/jobs/find", "", {"queue": queue}),
    "wait_for": lambda house, queue: ("/v1/jobs/wait", "", {"ids": [house.waiting[queue]], "timeout_s": 0}),
    "cancel": _waiting("/v1/jobs/cancel"),
    "retry": lambda house, queue: ("/v1/jobs/retry", "", {"refs": [house.ended[queue]]}),
    "remove": _waiting("/v1/jobs/remove", force=True),
    "job": _job(),
    "edit": lambda house, queue: (f"/v1/jobs/{house.waiting[queue]}", "", {"priority": 5}),
    "history": _job("/history"),
    "output": _job("/output"),
    "why": _job("/why"),
    "events": _job("/events"),
    "tree": _job("/tree"),
    "all_events": _plain("/v1/events"),
    "stream": lambda house, queue: ("/v1/stream", f"?job={house.jobs[queue][0]}"),
    "status": _plain("/v1/status"),
    "queues": _plain("/v1/queues"),
    "set_queue": lambda house, queue: (f"/v1/queues/{queue}", "", {"concurrency": 3}),
    "pause": lambda house, queue: (f"/v1/queues/{queue}/pause", "", {}),
    "resume": lambda house, queue: (f"/v1/queues/{queue}/resume",),
    "pool_views": _plain("/v1/pools"),
    "pool_events": _plain("/v1/pools/events"),
    "stop_pools": lambda house, queue: ("/v1/pools/stop", "", {"pools": [house.jobs[queue][1]]}),
    "settings": _plain("/v1/config"),
    "set_setting": _plain("/v1/config/lock_lease_seconds", "", {"value": "45"}),
    "unset_setting": _plain("/v1/config/lock_lease_seconds"),
}
