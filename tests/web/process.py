"""`covey server` as a process of its own, and sockets that behave badly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from covey.testing.until import until
from tests.kit.running import memory


class Running:
    def __init__(self, db: Path, *words: str) -> None:
        self.db = db
        self.log = db.with_name("server.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "covey", "server", "--db", str(db), "--port", "0", *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=db.parent,
            )
        self.note = db.with_name(f"{db.name}-covey") / "server.json"
        try:
            until(lambda: self.process.poll() is not None or self._url(), 30, "the server is ready")
            assert self.process.poll() is None, self.said
            self.url = str(self._url())
        except BaseException:
            self.kill()
            raise
        self.port = int(urlsplit(self.url).port or 0)

    def _url(self) -> str | None:
        try:
            note = json.loads(self.note.read_text())
        except (OSError, ValueError):
            return None
        return str(note["url"]) if note["pid"] == self.process.pid else None

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def memory(self) -> int:
        return memory(self.process.pid)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def ask(self, method: str, target: str, body: Any = None, token: str | None = None) -> tuple[int, bytes]:
        return ask(self.port, method, target, body, token)


@contextmanager
def running(db: Path, *words: str) -> Iterator[Running]:
    server = Running(db, *words)
    try:
        yield server
        assert server.stop() == 0, server.said
    finally:
        if server.process.poll() is None:
            server.kill()


def connected(port: int, data: bytes = b"", **options: int) -> socket.socket:
    connection = socket.socket()
    for name, value in options.items():
        connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    connection.connect(("127.0.0.1", port))
    connection.settimeout(30)
    connection.sendall(data)
    return connection


def answer(connection: socket.socket, timeout_s: float = 30) -> bytes:
    """All that is said until the other side closes."""
    connection.settimeout(timeout_s)
    said = b""
    try:
        while more := connection.recv(1 << 16):
            said += more
    except ConnectionError:
        pass
    return said


def head(method: str, target: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def ask(port: int, method: str, target: str, body: Any = None, token: str | None = None) -> tuple[int, bytes]:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    with connected(port, head(method, target, *lines) + data) as connection:
        said = answer(connection)
    return int(said.split(b" ", 2)[1]), said.partition(b"\r\n\r\n")[2]


def environ_and_arguments(pid: int) -> str:
    found = ""
    for name in ("cmdline", "environ"):
        try:
            found += Path(f"/proc/{pid}/{name}").read_text(errors="replace")
        except OSError:
            continue
    return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
