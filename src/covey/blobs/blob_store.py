"""What every place for blobs can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from ..errors import CoveyError, InvalidInput

CHUNK = 1 << 18
NAME = re.compile(r"[0-9a-f]{64}")


class BlobMissing(CoveyError):
    """The blob is not there, or what is there is something else: whoever needs it runs the job again."""

    def __init__(self, digest: str, why: str = "is not there") -> None:
        super().__init__(f"blob {digest[:12]}… {why}")
        self.digest = digest


class BlobRefused(InvalidInput):
    """What arrived is not what was announced; nothing was kept."""


class BlobStore(Protocol):
    def has(self, digest: str) -> bool:
        """Whether it is there; nobody has looked at its content."""
        ...

    def add(self, digest: str, chunks: Iterable[bytes]) -> int:
        """The bytes are kept under their digest; how many. BlobRefused if they have another one."""
        ...

    def read(self, digest: str) -> Iterator[bytes]:
        """The bytes. BlobMissing at once if there is no such blob, at the end if what was read is another."""
        ...


def check_name(digest: str) -> str:
    if not NAME.fullmatch(digest):
        raise InvalidInput(f"blob {digest!r}: a name is the SHA-256 of the content, 64 characters of 0-9 and a-f")
    return digest


def chunks_of(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
