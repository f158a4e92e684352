"""What pool, zygote and worker say to each other.

pool → worker   one SOCK_SEQPACKET message per job; over 32 KiB it travels as a memfd beside the message
worker → pool   length-prefixed frames on a stream, sent the moment a job ends: what the kernel has survives the worker;
                on the same socket, back, answers to what a task asks: its number, beside it a memfd
pool ↔ zygote   one SOCK_SEQPACKET message per request or answer
"""

from __future__ import annotations

import os
import socket
import struct
from array import array

import msgspec
from msgspec import Struct

from ..core.model import Claim, Report
from .setting import WorkerConfig

BIG = 32 * 1024
GARBLED = ""  # instead of a worker's name, in what it did not say
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_FD_SPACE = socket.CMSG_SPACE(4)
# Plain integers: the socket module's flags are enums, and their arithmetic costs more than the decoding.
WAIT = int(socket.MSG_CMSG_CLOEXEC)
DONT_WAIT = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_TRUNCATED = int(socket.MSG_TRUNC)


class RunJob(Struct, array_like=True):
    """A job for a worker. `live`: show its output while it runs (tiny jobs are not worth the files)."""

    serial: int
    live: bool
    claim: Claim


class JobDone(Struct, array_like=True, tag="done"):
    serial: int
    report: Report


class Ready(Struct, array_like=True, tag="ready"):
    """The worker has started: from now on it takes jobs."""

    name: str


class Broken(Struct, array_like=True, tag="broken"):
    """The worker cannot work and is about to exit."""

    name: str
    error: str


class Ask(Struct, array_like=True, tag="ask"):
    """A task wants to know which of its siblings have failed by now."""

    serial: int
    number: int  # of the question, in this worker


class ForkWorker(Struct, array_like=True, tag="fork"):
    """pool → zygote, with three descriptors: jobs, reports, slot."""

    name: str
    kind: str
    places: int


class Adopt(Struct, array_like=True, tag="adopt"):
    """pool → zygote that was started before the pool had a number; beside it the log, if there is one."""

    config: WorkerConfig
    url: str  # of the queue


class Preloaded(Struct, array_like=True, tag="preloaded"):
    """zygote → pool: what the app has; or why it cannot be imported."""

    tasks: dict[str, str]  # name → sync | async
    error: str | None = None
    note: str | None = None
    queue: str | None = None  # that the app names
    token: str | None = None  # that the app has for it
    pid: int = 0
    ticks: int = 0


class Forked(Struct, array_like=True, tag="forked"):
    name: str
    pid: int
    ticks: int


class NotForked(Struct, array_like=True, tag="unborn"):
    """The system would not give us another process."""

    name: str
    error: str


class Exited(Struct, array_like=True, tag="exited"):
    pid: int
    status: int


FromWorker = JobDone | Ready | Broken | Ask
FromZygote = Preloaded | Forked | NotForked | Exited

encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(RunJob).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_from_zygote = msgspec.msgpack.Decoder(FromZygote).decode
decode_from_pool = msgspec.msgpack.Decoder(ForkWorker | Adopt).decode


def send_job(end: socket.socket, message: bytes) -> None:
    """The message is in the worker's socket; BlockingIOError if that is full."""
    if len(message) <= BIG:
        end.send(message)
        return
    fd = os.memfd_create("covey-job", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as body:
            body.write(message)
        end.sendmsg([b"\xc0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))])
    finally:
        os.close(fd)


def receive_job(end: socket.socket, flags: int = WAIT) -> RunJob | None:
    """The next job, or None when the pool has hung up."""
    data, beside, found, _ = end.recvmsg(BIG, _FD_SPACE, flags)
    if found & _TRUNCATED:
        raise OSError("a job message was cut short")
    if beside:
        fd = array("i", beside[0][2])[0]
        with open(fd, "rb") as body:
            body.seek(0)
            data = body.read()
    return decode_job(data) if data else None


def send_answer(end: socket.socket, number: int, body: bytes | None) -> None:
    """The answer is in the worker's socket, in one piece whatever its size; OSError if there is no room."""
    beside, fd = [], -1
    try:
        if body is not None:
            fd = os.memfd_create("covey-answer", os.MFD_CLOEXEC)
            with open(fd, "wb", closefd=False) as file:
                file.write(body)
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))]
        end.sendmsg([_NUMBER.pack(number)], beside)
    finally:
        if fd >= 0:
            os.close(fd)


def receive_answer(end: socket.socket) -> tuple[int, bytes | None] | None:
    """(number, body) of the next answer; None when the pool has hung up. Blocks."""
    data, beside, _, _ = end.recvmsg(_NUMBER.size, _FD_SPACE, WAIT)
    body = None
    if beside:
        with open(array("i", beside[0][2])[0], "rb") as file:
            file.seek(0)
            body = file.read()
    return (*_NUMBER.unpack(data), body) if len(data) == _NUMBER.size else None


def frame(message: FromWorker) -> bytes:
    body = encode(message)
    return _LENGTH.pack(len(body)) + body


def frame_parts(message: FromWorker) -> tuple[bytes, ...]:
    """The frame in one piece; a large one in two, because joining them would copy what may be 50 MB."""
    body = encode(message)
    length = _LENGTH.pack(len(body))
    return (length + body,) if len(body) <= BIG else (length, body)


def unframe(buffer: bytearray) -> list[FromWorker]:
    """The whole messages at the front of the buffer, removed from it. A half one stays.

    One that cannot be read says that its worker is broken. What is no message at all ends what can be read of it.
    """
    messages: list[FromWorker] = []
    at, end = 0, len(buffer)
    view = memoryview(buffer)
    while end - at >= 4:
        (length,) = _LENGTH.unpack_from(view, at)
        if end - at - 4 < length:
            break
        try:
            messages.append(decode_from_worker(view[at + 4 : at + 4 + length]))
        except msgspec.DecodeError as error:
            messages.append(Broken(GARBLED, f"it said what cannot be read: {error}"))
            if not isinstance(error, msgspec.ValidationError):
                at = end
                break
        at += 4 + length
    view.release()
    del buffer[:at]
    return messages
