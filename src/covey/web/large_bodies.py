"""Large bodies, unpacked piece by piece: what is too many or too large is refused before anything is made of it.

A body of two bytes for each job would else be a hundred times as large in memory, and nobody else would run meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..core.bodies import MOST_JOBS, Complete, Enqueue, EnqueueJobs, SpawnAsk
from ..core.check import check_labels
from ..core.model import MAX_PAYLOAD, Spec
from ..errors import InvalidInput, TooLarge

LARGEST = 2 * MAX_PAYLOAD  # bytes of one job: what its arguments may have, and room for all else
MOST_NESTED = 1_000_000  # objects and lists in a list of jobs: each is looked at, which takes a second for so many
Piece = bytes | msgspec.Raw
# Of JSON all that has to be looked at to find where the elements of a list begin and end; strings are passed over.
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_Pieces = Annotated[list[msgspec.Raw], Meta(max_length=MOST_JOBS)]  # of msgpack the length is known before


class _Specs(Enqueue, kw_only=True):
    specs: msgspec.Raw  # type: ignore[assignment]


class _PackedSpecs(Enqueue, kw_only=True):
    specs: _Pieces  # type: ignore[assignment]


class _Jobs(EnqueueJobs, kw_only=True):
    jobs: msgspec.Raw  # type: ignore[assignment]


class _PackedJobs(EnqueueJobs, kw_only=True):
    jobs: _Pieces  # type: ignore[assignment]


class _Spawned(SpawnAsk, kw_only=True):
    jobs: msgspec.Raw  # type: ignore[assignment]


class _PackedSpawned(SpawnAsk, kw_only=True):
    jobs: _Pieces  # type: ignore[assignment]


class _Completed(Complete, kw_only=True):
    result: msgspec.Raw = msgspec.Raw(b"")


# What is taken → how its parts arrive, in JSON and in msgpack, and which part is the large one.
_PARCELS: dict[Any, tuple[Any, Any, str]] = {
    Enqueue: (_Specs, _PackedSpecs, "specs"),
    EnqueueJobs: (_Jobs, _PackedJobs, "jobs"),
    SpawnAsk: (_Spawned, _PackedSpawned, "jobs"),
    Complete: (_Completed, _Completed, "result"),
}


class Objects:
    """Jobs as people write them, each made when somebody looks at it."""

    def __init__(self, pieces: Iterable[Piece], decoder: Any) -> None:
        self._pieces, self._decode = list(pieces), decoder(dict[str, Any]).decode

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for place, piece in enumerate(self._pieces):
            try:
                job = self._decode(piece)
            except RecursionError:
                raise InvalidInput(f"jobs[{place}]: it is nested too deeply") from None
            except (msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError) as error:
                raise InvalidInput(f"jobs[{place}]: {error}") from None
            yield job


def unpacked(data: bytes, kind: Any, *, is_json: bool) -> Any:
    """The body as that struct, or InvalidInput, or TooLarge."""
    decoder = msgspec.json.Decoder if is_json else msgspec.msgpack.Decoder
    if kind not in _PARCELS:
        return decoder(kind).decode(data)
    in_json, in_msgpack, name = _PARCELS[kind]
    parcel = decoder(in_json if is_json else in_msgpack).decode(data)
    held = getattr(parcel, name)
    if kind is Complete:
        value: Any = _result(held, decoder)
    else:
        pieces = _checked(_elements(bytes(held), name) if is_json else held, name)
        value = _specs(pieces, decoder) if kind is Enqueue else Objects(pieces, decoder)
    rest = {field: getattr(parcel, field) for field in kind.__struct_fields__ if field != name}
    return kind(**rest, **{name: value})


def _result(held: msgspec.Raw, decoder: Any) -> Any:
    if (size := len(memoryview(held))) > LARGEST:
        raise TooLarge(f"result: {size:,} bytes, the limit is {MAX_PAYLOAD:,} of JSON; pass a path or an id instead")
    return decoder(Any).decode(held) if size else None


def _specs(pieces: Iterable[Piece], decoder: Any) -> list[Spec]:
    unpack, specs = decoder(Spec).decode, []
    try:
        for piece in pieces:
            specs.append(unpack(piece))
            check_labels(specs[-1].labels)
    except (msgspec.ValidationError, InvalidInput) as error:
        raise InvalidInput(f"specs[{len(specs)}]: {error}") from None
    return specs


def _checked(pieces: Iterable[Piece], name: str) -> Iterator[Piece]:
    for place, piece in enumerate(pieces):
        if place == MOST_JOBS:
            raise too_many(name)
        if (size := len(memoryview(piece))) > LARGEST:
            raise TooLarge(f"{name}[{place}]: {size:,} bytes, the limit is {LARGEST:,}; pass a path or an id instead")
        yield piece


def too_many(name: str, most: int = MOST_JOBS) -> TooLarge:
    return TooLarge(f"{name}: at most {most:,} in one request; send them in parts")


def _elements(text: bytes, name: str) -> Iterator[bytes]:
    """The objects in a JSON list, as they are written."""
    if not text.startswith(b"["):
        raise InvalidInput(f"{name}: a list is expected")
    depth = begun = ended = inside = 0
    is_first = True
    for mark in _MARKS.finditer(text):
        at = mark.start()
        sign = text[at]
        if sign in b"{[":
            depth += 1
            inside += depth > 2
            if inside > MOST_NESTED:
                raise TooLarge(
                    f"{name}: more than {MOST_NESTED:,} objects and lists inside of them; send them in parts"
                )
            if depth == 2:
                _check_between(text[ended or 1 : at], name, is_first)
                begun, is_first = at, False
        elif sign in b"]}":
            depth -= 1
            if depth == 1:
                ended = at + 1
                yield text[begun:ended]
    _check_between(text[ended or 1 : -1], name, True)


def _check_between(text: bytes, name: str, is_edge: bool) -> None:
    """Beside objects there is nothing in the list but a comma between two."""
    if text.strip() != (b"" if is_edge else b","):
        raise InvalidInput(f"{name}: a list of objects is expected")
