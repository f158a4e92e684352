"""Outputs of a run: kept as blobs, and put in place, all of them or none.

Everything is fetched into files beside the targets first, with its digest checked, and only then renamed: what was
there before stays whole until all of the new is here. Whoever was cut off in between is put right by the next look.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..env import failpoint
from ..errors import Refused
from .blob_store import BlobStore, chunks_of
from .directory import Directory

TEMPORARY = ".covey-placing-"


class Output(Struct, array_like=True, frozen=True):
    """A file that a run has made."""

    path: str  # relative to the root
    form: str  # file or exec
    digest: str
    size: int


class OutputMissing(Refused):
    """The run succeeded without a file that it had declared: then it has failed."""


def ingest(directory: str, paths: Iterable[str], blobs: BlobStore, *, most: int | None = None) -> list[Output]:
    """Copies of the declared outputs are kept; what was made is named with its digest."""
    made: list[Output] = []
    total = 0
    for path in paths:
        full = os.path.join(directory, path)
        try:
            found = os.lstat(full)
        except OSError:
            raise OutputMissing(f"output {path!r} was not made") from None
        if not stat.S_ISREG(found.st_mode):
            raise OutputMissing(f"output {path!r} is no file")
        total += found.st_size
        if most is not None and total > most:
            raise Refused(f"its outputs are larger than {most:,} bytes together (cache_max_bytes)")
        form = "exec" if found.st_mode & 0o100 else "file"
        failpoint("blob.before_ingest")
        if isinstance(blobs, Directory):
            stored = blobs.add_file(full)
            made.append(Output(path, form, stored.digest, stored.size))
        else:
            with open(full, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            blobs.add(digest, chunks_of(full))
            made.append(Output(path, form, digest, found.st_size))
    return made


def is_in_place(root: str, output: Output) -> bool:
    """Whether exactly this file stands there."""
    full = os.path.join(root, output.path)
    try:
        found = os.lstat(full)
        if not stat.S_ISREG(found.st_mode) or found.st_size != output.size:
            return False
        if bool(found.st_mode & 0o100) != (output.form == "exec"):
            return False
        with open(full, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == output.digest
    except OSError:
        return False


def place(root: str, outputs: Sequence[Output], blobs: BlobStore) -> list[str]:
    """Every output stands at its path with these bytes; the paths that were written. BlobMissing: none was."""
    wanted = [output for output in outputs if not is_in_place(root, output)]
    ready: list[tuple[str, str]] = []
    try:
        for output in wanted:
            ready.append(_fetch(root, output, blobs))
        failpoint("placing.before_rename")
        for temporary, target in ready:
            os.rename(temporary, target)
            failpoint("placing.between_renames")
    except OSError as error:
        raise Refused(f"outputs cannot be put in place ({error})") from None
    finally:
        for temporary, _ in ready:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return [output.path for output in wanted]


def _fetch(root: str, output: Output, blobs: BlobStore) -> tuple[str, str]:
    """(temporary file with the bytes, target)."""
    target = os.path.join(root, output.path)
    directory = os.path.dirname(target)
    inside = os.path.realpath(directory)
    base = os.path.realpath(root)
    if inside != base and not inside.startswith(base.rstrip("/") + "/"):
        raise Refused(f"output {output.path!r} would be written outside of {root}, through a link")
    os.makedirs(directory, exist_ok=True)
    if os.path.isdir(target):
        raise Refused(f"output {output.path!r}: a directory stands there; move it away")
    chunks = blobs.read(output.digest)
    temporary = tempfile.mktemp(
        prefix=TEMPORARY, dir=directory
    )  # opened below so that the umask counts, and only if new
    mode = 0o777 if output.form == "exec" else 0o666
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(fd, "wb", buffering=1 << 18) as file:
            for chunk in chunks:
                file.write(chunk)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary, target
