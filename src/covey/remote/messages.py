"""What a request says and what an answer means: values as bytes, words in a path, errors as if raised here."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ..core import bodies, check, endpoints
from ..core.endpoints import MSGPACK, Endpoint
from ..errors import CoveyError, InvalidInput, Refused
from .transport import Answer

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}


class Unwritable(InvalidInput):
    """Nothing that can be sent: half a character, or a number of more than 64 bits."""


def encode(body: msgspec.Struct) -> bytes:
    try:
        return _encoder.encode(body)
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.start + 20]
        raise Unwritable(f"cannot be sent to the server: {near!r} has a lone surrogate, which is not text") from None
    except OverflowError as error:
        raise Unwritable(f"cannot be sent to the server: {error}") from None


def quoted(what: str, text: str) -> str:
    if not check.is_unicode(text):
        raise Unwritable(f"{what} {text!r}: this is not text, and nothing here can be called that")
    return quote(text, safe="")


def decode(endpoint: Endpoint, answer: Answer) -> Any:
    decoder = _decoders.get(endpoint.name)
    if decoder is None:
        decoder = _decoders[endpoint.name] = msgspec.msgpack.Decoder(endpoint.gives)
    try:
        if answer.kind != MSGPACK:
            return msgspec.json.decode(answer.body, type=endpoint.gives)
        return decoder.decode(answer.body)
    except msgspec.DecodeError as error:
        raise Refused(f"the server's answer to {endpoint.name} makes no sense here ({error}); upgrade both") from None


def query_string(query: msgspec.Struct) -> str:
    fields = {name: value for name, value in msgspec.structs.asdict(query).items() if value is not None}
    return "?" + urlencode(fields, doseq=True) if fields else ""


def error_of(answer: Answer, url: str) -> CoveyError:
    decode = msgspec.msgpack.decode if answer.kind == MSGPACK else msgspec.json.decode
    try:
        return endpoints.error_of(decode(answer.body, type=bodies.Failed).error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Refused(f"what answers at {url} is not a Covey server (HTTP {answer.status}); check the port")
