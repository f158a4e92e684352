"""Blobs behind a URL.

Bazel's layout `…/cas/{sha256}`, as nginx with DAV or bazel-remote have it, or a Covey server's `/v1/blobs/{sha256}`.
"""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from ..errors import CoveyError, InvalidInput, Unreachable
from .blob_store import CHUNK, BlobMissing, BlobRefused, check_name

CONNECT_S = 5.0
ANSWER_S = 60.0
OURS = "/v1/blobs/"
BAZEL = "/cas/"


class HttpBlobs:
    """``layout``: where below the address blobs are. A connection for each blob: they are few, and some are large."""

    def __init__(self, url: str, *, layout: str = BAZEL, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"blobs {url!r}: a directory, or a URL like http://HOST:PORT")
        if parts.username is not None:
            raise InvalidInput("a password does not belong into the address of blobs")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/") + layout
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url

    def has(self, digest: str) -> bool:
        connection, answer = self._ask("HEAD", digest)
        connection.close()
        return answer.status == 200

    def add(self, digest: str, chunks: Iterable[bytes]) -> int:
        """Sent in pieces of unknown number; the other side, if it is a Covey server, checks the digest."""
        if self.has(digest):
            return 0
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                size += len(chunk)
                yield chunk

        connection, answer = self._ask("PUT", digest, counted())
        said = answer.read(500).decode("utf-8", "replace")
        connection.close()
        if answer.status not in (200, 201, 204):
            raise BlobRefused(f"{self._url} does not take blob {digest[:12]}…: {answer.status} {said}")
        return size

    def read(self, digest: str) -> Iterator[bytes]:
        connection, answer = self._ask("GET", digest)
        if answer.status != 200:
            connection.close()
            raise BlobMissing(digest)
        return self._checked(connection, answer, digest)

    def _checked(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, digest: str
    ) -> Iterator[bytes]:
        seen = hashlib.sha256()
        try:
            while chunk := answer.read(CHUNK):
                seen.update(chunk)
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise BlobMissing(digest, f"was cut off ({error})") from None
        finally:
            connection.close()
        if seen.hexdigest() != digest:
            raise BlobMissing(digest, "came as something else")

    def _ask(
        self, method: str, digest: str, body: Iterable[bytes] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_S)
            headers = self._headers | ({"transfer-encoding": "chunked"} if body is not None else {})
            target = self._prefix + check_name(digest)
            connection.request(method, target, body, headers, encode_chunked=body is not None)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"the blobs at {self._url} cannot be reached ({error})") from None
        if answer.status in (401, 403):
            connection.close()
            raise CoveyError(f"the blobs at {self._url} are not for this token ({answer.status})")
        return connection, answer
