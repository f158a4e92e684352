"""The files that a run declares: which paths may be named, what stands there, whether it has changed.

A link counts as what it leads to. What is no file (a directory, a FIFO) is refused: a pattern names the files of a
directory.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import InvalidInput

RACY_NS = 20_000_000  # a file as young as that may change once more within the same tick of its time stamps
MAGIC = frozenset("*?[")


class Signature(NamedTuple):
    """What a file looks like without reading it."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int


class Seen(NamedTuple):
    """One declared input. ``form``: file, exec, absent, or pattern, which is the name of many."""

    path: str
    form: str
    digest: str | None
    signature: Signature | None = None
    settled: bool = False  # an equal signature means equal content

    @property
    def part(self) -> tuple[str, str, str | None]:
        return self.path, self.form, self.digest


def relative(path: str, what: str) -> str:
    """The path as it stands in a key; InvalidInput for one that leads elsewhere."""
    text = os.fspath(path)
    if not text or "\x00" in text or not text.isprintable():
        raise InvalidInput(f"{what} {text!r}: a path of printable characters is needed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} {text!r}: a name that is not UTF-8 cannot be part of a key") from None
    if os.path.isabs(text) or text.startswith("~"):
        raise InvalidInput(f"{what} {text!r}: a path below the directory of the job is needed, not an absolute one")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or text.endswith("/"):
        raise InvalidInput(f"{what} {text!r}: it must be a file below the directory of the job")
    return "/".join(parts)


def is_pattern(path: str) -> bool:
    return not MAGIC.isdisjoint(path)


def declared(inputs: Iterable[str], outputs: Iterable[str]) -> tuple[list[str], list[str]]:
    """Both lists with clean paths; InvalidInput for one that stands in the way of another."""
    ins = [relative(path, "input") for path in inputs]
    outs = [relative(path, "output") for path in outputs]
    for place, out in enumerate(outs):
        if is_pattern(out):
            raise InvalidInput(f"output {out!r}: a name is needed, a pattern is for inputs")
        if out in outs[:place]:
            raise InvalidInput(f"output {out!r} is named twice")
        for other in outs:
            if other.startswith(out + "/"):
                raise InvalidInput(f"output {out!r} would be the directory of output {other!r}; name another")
        for path in ins:
            if path == out or (is_pattern(path) and fnmatch.fnmatchcase(out, path.replace("**/", "*"))):
                raise InvalidInput(f"{out!r} is an input and an output; a run never writes what it reads")
    return ins, outs


def scan(root: str, inputs: Sequence[str], *, missing_ok: bool = False) -> list[Seen]:
    """Every input as it is now, each once, in the order of their paths; patterns beside what they match."""
    seen: dict[str, Seen] = {}
    for path in inputs:
        if not is_pattern(path):
            seen[path] = look(root, path)
            continue
        seen[path] = Seen(path, "pattern", None)
        for found in glob.iglob(path, root_dir=root, recursive=True, include_hidden=False):
            if os.path.isfile(os.path.join(root, found)):
                seen.setdefault(found, look(root, relative(found, "input")))
    absent = [each.path for each in seen.values() if each.form == "absent"]
    if absent and not missing_ok:
        raise InvalidInput(f"input {absent[0]!r}: there is no such file in {root}")
    return [seen[path] for path in sorted(seen)]


def look(root: str, path: str, known: Seen | None = None) -> Seen:
    """The file, read only if it is not ``known`` to be as it was."""
    full = os.path.join(root, path)
    try:
        before = sign(full)
    except FileNotFoundError:
        return Seen(path, "absent", None)
    except OSError as error:
        raise InvalidInput(f"input {path!r} cannot be read: {error.strerror}") from None
    if known is not None and known.settled and known.signature == before:
        return known
    began = time.time_ns()
    if not stat.S_ISREG(before.mode):
        raise InvalidInput(f"input {path!r} is no file; to name the files of a directory say a pattern, {path}/*")
    try:
        with open(full, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"input {path!r} cannot be read: {error.strerror}") from None
    settled = max(before.mtime_ns, before.ctime_ns) + RACY_NS < began
    return Seen(path, "exec" if before.mode & 0o100 else "file", digest, before, settled)


def sign(path: str) -> Signature:
    found = os.stat(path)
    return Signature(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def changed(root: str, inputs: Sequence[str], seen: Sequence[Seen]) -> str | None:
    """The first input that is not what it was when it was looked at, None if all are."""
    before = {each.path: each for each in seen}
    paths = {each.path for each in seen if each.form != "pattern"}
    for path in sorted({*paths, *(each.path for each in _again(root, inputs) if each.form != "pattern")}):
        known = before.get(path)
        if known is None or look(root, path, known).part != known.part:
            return path
    return None


def _again(root: str, inputs: Sequence[str]) -> list[Seen]:
    """What the patterns match now; nothing is read."""
    found = []
    for path in inputs:
        if is_pattern(path):
            for name in glob.iglob(path, root_dir=root, recursive=True, include_hidden=False):
                if os.path.isfile(os.path.join(root, name)):
                    found.append(Seen(name, "file", None))
    return found
