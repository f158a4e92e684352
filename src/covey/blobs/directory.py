"""Blobs in a directory: `ab/cdef…`, read-only copies, each written beside and renamed.

Without fsync, which would cost five times as much: a blob that a crash has torn is known by its digest, and is a miss.
Never a hard link from or into a user's files: whoever writes into one of those would write into the blob.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ..env import failpoint
from ..errors import StoreError
from .blob_store import CHUNK, NAME, BlobMissing, BlobRefused, check_name

YOUNG_S = 3600.0  # what was written or asked for within it is not collected: its record may be about to be written
MODE = 0o444


class Stored(NamedTuple):
    digest: str
    size: int
    touched_at: float


class Directory:
    """``most``: bytes of one blob; what is longer is refused while it arrives."""

    def __init__(self, root: str, *, most: int | None = None) -> None:
        self.root = root
        self._most = most

    def path(self, digest: str) -> str:
        check_name(digest)
        return os.path.join(self.root, digest[:2], digest[2:])

    def has(self, digest: str) -> bool:
        return os.path.isfile(self.path(digest))

    def size(self, digest: str) -> int:
        try:
            return os.stat(self.path(digest)).st_size
        except OSError:
            raise BlobMissing(digest) from None

    def add(self, digest: str, chunks: Iterable[bytes]) -> int:
        """What is there already is left as it is, and is young again: nobody collects it while a record is written."""
        path = self.path(digest)
        with contextlib.suppress(OSError):
            os.utime(path)
            return os.stat(path).st_size
        return self._write(chunks, digest).size

    def add_file(self, path: str) -> Stored:
        """A copy of the file is kept; digest and size are those of the copy, whatever becomes of the file."""
        with open(path, "rb") as file:
            return self._write(iter(lambda: file.read(CHUNK), b""), None)

    def read(self, digest: str) -> Iterator[bytes]:
        try:
            fd = os.open(self.path(digest), os.O_RDONLY)
        except OSError:
            raise BlobMissing(digest) from None
        return self._checked(fd, digest)

    def _checked(self, fd: int, digest: str) -> Iterator[bytes]:
        seen = hashlib.sha256()
        with open(fd, "rb") as file:
            while chunk := file.read(CHUNK):
                seen.update(chunk)
                yield chunk
        if seen.hexdigest() != digest:
            self.drop(digest)
            raise BlobMissing(digest, "was damaged, and is removed")

    def drop(self, digest: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(digest))

    def all(self) -> Iterator[Stored]:
        """Every blob; nothing about its content."""
        for first in _names(self.root):
            if len(first) == 2:
                for rest in _names(os.path.join(self.root, first)):
                    if NAME.fullmatch(first + rest):
                        with contextlib.suppress(FileNotFoundError):
                            found = os.stat(os.path.join(self.root, first, rest))
                            yield Stored(first + rest, found.st_size, found.st_mtime)

    def verify(self, *, repair: bool = False) -> list[str]:
        """Digests of the blobs whose content is another; with ``repair`` these are no more."""
        bad = []
        for stored in self.all():
            with contextlib.suppress(FileNotFoundError):
                with open(self.path(stored.digest), "rb") as file:
                    damaged = hashlib.file_digest(file, "sha256").hexdigest() != stored.digest
                if damaged:
                    bad.append(stored.digest)
                    if repair:
                        self.drop(stored.digest)
        return bad

    def collect(self, used: Collection[str], now_s: float, *, young_s: float = YOUNG_S) -> int:
        """What nobody uses and nobody has touched of late is gone, and so are remains of writes; how many bytes."""
        freed = 0
        for stored in self.all():
            if stored.digest not in used and stored.touched_at < now_s - young_s:
                self.drop(stored.digest)
                freed += stored.size
        for name in _names(self.root):
            if name.startswith("tmp-"):
                path = os.path.join(self.root, name)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_mtime < now_s - young_s:
                        freed += os.stat(path).st_size
                        os.unlink(path)
        return freed

    def _write(self, chunks: Iterable[bytes], digest: str | None) -> Stored:
        seen, size = hashlib.sha256(), 0
        try:
            os.makedirs(self.root, exist_ok=True)
            fd, temporary = tempfile.mkstemp(prefix="tmp-", dir=self.root)
            try:
                with open(fd, "wb", buffering=0) as file:
                    for chunk in chunks:
                        seen.update(chunk)
                        size += len(chunk)
                        if self._most is not None and size > self._most:
                            raise BlobRefused(f"a blob of more than {self._most:,} bytes is not kept")
                        _write_all(file.fileno(), chunk)
                    os.chmod(temporary, MODE)
                found = seen.hexdigest()
                if digest is not None and found != digest:
                    raise BlobRefused(f"blob {digest[:12]}…: what arrived has the digest {found[:12]}…; send it again")
                failpoint("blob.before_rename")
                path = self.path(found)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.rename(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise StoreError(f"a blob cannot be kept in {self.root} ({error.strerror or error})") from None
        return Stored(found, size, 0.0)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
