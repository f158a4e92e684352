"""What may stand between a client and PostgreSQL: a proxy that breaks connections where it hurts, one that pools.

Both speak the protocol as far as they must: where a message ends, which one is a COMMIT, when a transaction is over.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

Where = Callable[[bytes], bool]
# before: the server never sees the message. after: it does, the client hears nothing. hold: the client hears nothing,
# and the server sees the message when it is released.
How = Literal["before", "after", "hold"]

ENCRYPTION = (80877103, 80877104)  # SSLRequest, GSSENCRequest
CANCEL = 80877102
GREETED = ("server_version", "client_encoding", "standard_conforming_strings", "integer_datetimes", "TimeZone")


def is_commit(message: bytes) -> bool:
    """Whether it ends a transaction well; a hint may travel behind the COMMIT."""
    return message[:1] == b"Q" and re.search(rb"(^|; )commit(;|$)", message[5:].rstrip(b"\0; ").lower()) is not None


def is_query(message: bytes) -> bool:
    return message[:1] == b"Q"


class Relay:
    """Accepts clients on loopback, each in a thread of its own. ``url`` names the same queue by way of it."""

    def __init__(self, url: str) -> None:
        self.server_url = url
        self._address = _address(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = _by_way_of(url, self._listener.getsockname()[1])
        self.refusing = False  # new clients are cut off at once
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Every connection is gone, in both directions."""
        with self._lock:
            for each in self._open:
                _shut(each)

    def close(self) -> None:
        self._closing = True
        _shut(self._listener)
        self._accepting.join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing or self._closing:
                client.close()
                continue
            thread = threading.Thread(target=self._run, args=(client,), name="proxy-client", daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _run(self, client: socket.socket) -> None:
        with self._keeping(client), contextlib.suppress(OSError, psycopg.Error):
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def _keeping(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)
                connection.close()


class Proxy(Relay):
    """Passes everything on, except what a test tells it to break."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.struck: Counter[str] = Counter()
        self.seen: deque[bytes] = deque(maxlen=1000)  # the queries that came by
        self.answers: list[bytes] = []  # what the server said to messages whose sender was gone
        self._plan: deque[tuple[Where, How]] = deque()
        self._held: deque[tuple[socket.socket, bytes]] = deque()

    def break_next(self, how: How, where: Where = is_commit) -> None:
        """The next message of that kind breaks its connection."""
        self._plan.append((where, how))

    def release(self) -> bytes:
        """What was held back reaches the server now; its answer."""
        server, message = self._held.popleft()
        with server:
            server.sendall(message)
            self.answers.append(_answer(server))
        return self.answers[-1]

    @property
    def holding(self) -> int:
        return len(self._held)

    def close(self) -> None:
        super().close()
        for server, _ in self._held:
            server.close()

    def _serve(self, client: socket.socket) -> None:
        greeting = _startup(client)
        server = _dial(self._address)
        with self._keeping(server):
            server.sendall(greeting)
            self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """Until one of the two hangs up, or something was broken."""
        messages = _Messages()
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if server in ready:
                data = server.recv(65536)
                if not data:
                    return
                client.sendall(data)
            if client in ready:
                data = client.recv(65536)
                if not data:
                    return
                for message in messages.of(data):
                    if message[:1] == b"Q":
                        self.seen.append(message)
                    if how := self._strike(message):
                        self._break(how, client, server, message)
                        return
                    server.sendall(message)

    def _strike(self, message: bytes) -> How | None:
        with self._lock:
            if self._plan and self._plan[0][0](message):
                return self._plan.popleft()[1]
        return None

    def _break(self, how: How, client: socket.socket, server: socket.socket, message: bytes) -> None:
        """The client is cut off. The server's connection lives on as long as it has something to hear or say."""
        if how == "hold":
            self._held.append((server.dup(), message))
        elif how == "after":
            server.sendall(message)
        self.struck[how] += 1
        _shut(client)
        if how == "after":
            self.answers.append(_answer(server))


class Pooling(Relay):
    """Gives every transaction to another session of the server, as a pooler in transaction mode may.

    A client sees sessions that know nothing of what it did before. Sessions are never reset: what somebody leaves
    behind in one is there for the others to stumble over.
    """

    def __init__(self, url: str, sessions: int = 3) -> None:
        self._direct = [_session(url) for _ in range(sessions)]
        self._free = deque(self._direct)
        self._freed = threading.Condition()
        self.swaps = 0
        super().__init__(url)

    @property
    def pids(self) -> list[int]:
        """Of the sessions, on the server."""
        return [db.info.backend_pid for db in self._direct]

    def close(self) -> None:
        super().close()
        for db in self._direct:
            db.close()

    def _serve(self, client: socket.socket) -> None:
        _startup(client)
        client.sendall(self._greeting())
        messages, last = _Messages(), -1
        while data := client.recv(65536):
            first = [message for message in messages.of(data) if message[:1] != b"X"]
            if first:
                last = self._transaction(client, messages, first, last)

    def _transaction(self, client: socket.socket, messages: _Messages, first: list[bytes], last: int) -> int:
        """From the client's first word until the server is idle again. Which session it was."""
        with self._freed:
            while not self._free:
                self._freed.wait()
            if self._free[0].info.backend_pid == last and len(self._free) > 1:
                self._free.rotate(-1)
            db = self._free.popleft()
        self.swaps += db.info.backend_pid != last
        try:
            with socket.socket(fileno=os.dup(db.fileno())) as server:
                self._relay(client, server, messages, first)
        finally:
            with self._freed:
                self._free.append(db)
                self._freed.notify()
        return db.info.backend_pid

    @staticmethod
    def _relay(client: socket.socket, server: socket.socket, messages: _Messages, first: list[bytes]) -> None:
        server.setblocking(True)
        server.sendall(b"".join(first))
        answers, here = _Messages(), True
        while True:
            ready, _, _ = select.select([client, server] if here else [server], [], [])
            if client in ready:
                data = client.recv(65536)
                here = bool(data)
                if not here:
                    server.sendall(_frame(b"Q", b"rollback\0"))
                server.sendall(b"".join(message for message in messages.of(data) if message[:1] != b"X"))
            if server in ready:
                data = server.recv(65536)
                if not data:
                    raise OSError("the server has hung up")
                if here:
                    client.sendall(data)
                if any(message[:1] == b"Z" and message[5:6] == b"I" for message in answers.of(data)):
                    return

    def _greeting(self) -> bytes:
        db = self._direct[0]
        told = b"".join(
            _frame(b"S", name.encode() + b"\0" + (db.info.parameter_status(name) or "").encode() + b"\0")
            for name in GREETED
        )
        return _frame(b"R", bytes(4)) + told + _frame(b"K", bytes(8)) + _frame(b"Z", b"I")


# ── the protocol ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Messages:
    """Whole messages out of a stream; what is not whole yet is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= 5:
            size = 1 + int.from_bytes(self._rest[1:5])
            if len(self._rest) < size:
                return
            message, self._rest = self._rest[:size], self._rest[size:]
            yield message


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


def _startup(client: socket.socket) -> bytes:
    """The client's first packet, once it has heard that there is no encryption here."""
    while True:
        head = _exactly(client, 8)
        body = _exactly(client, int.from_bytes(head[:4]) - 8)
        code = int.from_bytes(head[4:])
        if code in ENCRYPTION:
            client.sendall(b"N")
            continue
        if code == CANCEL:
            raise OSError("cancel requests are not passed on")
        return head + body


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("hung up")
        data += more
    return data


def _answer(server: socket.socket) -> bytes:
    """Everything up to the server's next ReadyForQuery, or to its end."""
    data, messages = b"", _Messages()
    with contextlib.suppress(OSError):
        while more := server.recv(65536):
            data += more
            if any(message[:1] == b"Z" for message in messages.of(more)):
                break
    return data


def _dial(address: str | tuple[str, int]) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# ── addresses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(url: str) -> tuple[SplitResult, dict[str, str]]:
    parts = urlsplit(url)
    return parts, dict(parse_qsl(parts.query))


def _conninfo(url: str) -> str:
    """The URL without what only Covey knows."""
    parts, options = _plain(url)
    ours = ("schema", "listen", "listen_url")
    return urlunsplit(parts._replace(query=urlencode({k: v for k, v in options.items() if k not in ours})))


def _address(url: str) -> str | tuple[str, int]:
    named = conninfo_to_dict(_conninfo(url))
    host, port = str(named.get("host") or "localhost"), int(named.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def _by_way_of(url: str, port: int) -> str:
    parts, options = _plain(url)
    user = parts.netloc.rpartition("@")[0]
    options |= {"host": "127.0.0.1", "port": str(port), "sslmode": "disable"}
    return urlunsplit(parts._replace(netloc=f"{user}@" if user else "", query=urlencode(options)))


def _session(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(_conninfo(url), sslmode="disable", autocommit=True, application_name="pooling")
