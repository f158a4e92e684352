"""From addresses to a running server: sockets bound before anything is promised, a clean stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from msgspec import Struct

from ..errors import InvalidInput, Refused
from ..log import Log
from .asgi import App
from .auth import is_loopback
from .engine_threads import Open
from .http_protocol import Careful

BACKLOG = 1024
KEEP_ALIVE_S = 75  # longer than the longest wait, so that a pool's connection is kept between two
STOP_S = 10


class Address(Struct, frozen=True):
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def bind(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listening sockets, one for each address; Refused if the port is taken."""
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            if not host.strip():
                raise InvalidInput("--host: an address is needed; 0.0.0.0 listens everywhere")  # and "" would, too
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                # Named as TCP, or asyncio leaves Nagle's algorithm on: 40 ms for every answer in two parts.
                sockets.append(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind((host, port))
                sockets[-1].listen(BACKLOG)
            except socket.gaierror:
                raise InvalidInput(f"--host {host}: no such address on this machine") from None
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise Taken(f"{host}:{port} is taken") from None
                raise InvalidInput(f"--host {host} --port {port}: {(error.strerror or str(error)).lower()}") from None
            port = port or sockets[0].getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


class Taken(Refused):
    """Somebody else answers there."""


class Stoppable(uvicorn.Server):
    """Whoever waits is answered when the server stops, instead of holding it up."""

    app: App
    on_ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.stop_waiting()
        await super().shutdown(sockets)


def server_of(app: App, on_ready: Callable[[], None]) -> Stoppable:
    """HTTP for the application, with our limits and without uvicorn's own words."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what matters is said in our own
    config = uvicorn.Config(
        app,
        http=Careful,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    server = Stoppable(config)
    server.app, server.on_ready = app, on_ready
    return server


def serve(
    open: Open,
    sockets: list[socket.socket],
    log: Log,
    *,
    names: Sequence[str] = (),
    needs_token: bool,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serves until INT or TERM, then answers what is under way and returns."""
    hosts = [each.getsockname()[0] for each in sockets]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each pool that waits has a connection

    async def run() -> None:
        app = App(open, log, names=(*hosts, *names), is_local=is_loopback(hosts), needs_token=needs_token)
        server = server_of(app, on_ready)
        try:
            await server.serve(sockets)
        finally:
            await app.close()

    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(run())
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _ignore(*_: Any) -> None:
    """uvicorn repeats the signals that it has heard once it has stopped: nothing is left to be done."""
