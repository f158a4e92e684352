"""A server that runs for a queue leaves a note beside it; whoever starts next finds it there."""

from __future__ import annotations

import contextlib
import os
import socket

import msgspec
from msgspec import Struct

from .env import alive, boot

NAME = "server.json"
ASK_S = 2.0


class Note(Struct, frozen=True, kw_only=True):
    url: str
    database_id: str
    version: str
    pid: int
    ticks: int
    boot: str


def leave_note(side: str, note: Note) -> None:
    """Whole or not at all: a reader never sees half of it."""
    if side:
        part = os.path.join(side, f"{NAME}.{note.pid}")
        with open(part, "wb") as file:
            file.write(msgspec.json.encode(note))
        os.replace(part, os.path.join(side, NAME))


def forget(side: str, mine: Note) -> None:
    if side and read_note(side) == mine:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(side, NAME))


def read_note(side: str) -> Note | None:
    try:
        with open(os.path.join(side, NAME), "rb") as file:
            return msgspec.json.decode(file.read(), type=Note)
    except (OSError, msgspec.DecodeError):
        return None


def found(side: str) -> Note | None:
    """The server of the queue with that side directory, if it lives on this host."""
    note = read_note(side) if side else None
    return note if note is not None and note.boot == boot() and alive(note.pid, note.ticks) else None


def who_answers(host: str, port: int) -> str:
    """What is known of whoever has the port: a few words."""
    try:
        with socket.create_connection((host, port), ASK_S) as connection:
            connection.settimeout(ASK_S)
            connection.sendall(f"GET /livez HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while len(answer) < 4096 and (more := connection.recv(4096)):
                answer += more
    except OSError:
        return "something that does not speak HTTP has it"
    if not answer.startswith(b"HTTP/"):
        return "something that does not speak HTTP has it"
    body = answer.partition(b"\r\n\r\n")[2]
    try:
        said = msgspec.json.decode(body)
        if isinstance(said, dict) and isinstance(version := said.get("version"), str) and "status" in said:
            return f"a Covey server, version {version[:40]}, answers there"
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        if line.lower().startswith(b"server:"):
            return f"another program answers there ({line[7:].strip().decode('latin-1')[:60]})"
    return "another program answers there"
