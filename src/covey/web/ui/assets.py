"""Files that pages load: a name with a hash of what is in it, kept by browsers for ever, packed once."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256
from importlib.resources import files

from msgspec import Struct

KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_IMPORTED = re.compile(rb'(from|import) "\./([a-z_]+\.js)"')


class Asset(Struct, frozen=True):
    kind: str
    plain: bytes
    packed: bytes


class Assets:
    """Read once. A module imports others by their plain names; what is sent names the hashed ones."""

    def __init__(self) -> None:
        room = files(__package__) / "static"
        self._bytes = {file.name: file.read_bytes() for file in room.iterdir() if not file.name.startswith("_")}
        self._names: dict[str, str] = {}
        self._made: dict[str, Asset] = {}
        for name in self._bytes:
            self.name(name)
        self.modules = [name for name in sorted(self._bytes) if name.endswith(".js") and name not in _ALONE]

    def name(self, file: str) -> str:
        """Under which the file is asked for: it changes with what is in the file, or in what it imports."""
        if file not in self._names:
            body = _IMPORTED.sub(lambda m: b'%s "./%s"' % (m[1], self.name(m[2].decode()).encode()), self._bytes[file])
            stem, dot, kind = file.rpartition(".")
            self._names[file] = f"{stem}-{sha256(body).hexdigest()[:12]}{dot}{kind}"
            self._made[self._names[file]] = Asset(KINDS[dot + kind], body, gzip.compress(body, 9, mtime=0))
        return self._names[file]

    def find(self, name: str) -> Asset | None:
        return self._made.get(name)


_ALONE = {"stream.js"}  # runs in a worker of its own
