"""A proxy before an HTTP server that swallows requests or answers, as a network does at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter, deque
from typing import Literal
from urllib.parse import urlsplit

# before: the server never hears the request. after: it does, but nobody hears its answer.
How = Literal["before", "after"]


class Cutting:
    """``url`` is the server by way of it. What is planned with `cut` breaks its connection; all else passes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._server = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.struck: Counter[str] = Counter()
        self._plan: deque[tuple[str, How]] = deque()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="cutting", daemon=True)]
        self._threads[0].start()

    def cut(self, ending: str, how: How = "after", times: int = 1) -> None:
        """The next requests whose path ends so break off."""
        self._plan.extend([(ending, how)] * times)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def __enter__(self) -> Cutting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._run, args=(client,), name="cutting-one", daemon=True))
            self._threads[-1].start()

    def _run(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
            with self._lock:
                self._open |= {client, server}
            try:
                while self._pass_on(client, server):
                    pass
            finally:
                with self._lock:
                    self._open -= {client, server}

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        """One request and its answer; False when the connection is over."""
        request = _message(client)
        if not request:
            return False
        path = request.split(b" ", 2)[1].partition(b"?")[0].decode()
        how = self._strike(path)
        if how == "before":
            return False
        server.sendall(request)
        answer = _message(server)
        if how == "after" or not answer:
            return False
        client.sendall(answer)
        return True

    def _strike(self, path: str) -> How | None:
        with self._lock:
            if self._plan and path.endswith(self._plan[0][0]):
                ending, how = self._plan.popleft()
                self.struck[ending] += 1
                return how
        return None


def _message(peer: socket.socket) -> bytes:
    """Head and body of one message; nothing when the other side has hung up."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := peer.recv(65536)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0]) if lengths else 0
    while len(body) < length:
        if not (more := peer.recv(65536)):
            return b""
        body += more
    return head + b"\r\n\r\n" + body
