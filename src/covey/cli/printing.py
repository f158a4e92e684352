"""What is printed: answers on stdout, everything else on stderr. No rich here, so short commands stay fast."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

# Direction overrides can make a line read as something it is not.
_DIRECTION = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}

_decided = 0


def answer(text: str) -> None:
    """The line is on stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """The line is on stderr, where it disturbs no pipe."""
    with suppress(OSError):  # a broken stdout is reported when the command ends
        sys.stdout.flush()
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def decide(code: int) -> int:
    """The command ends with this code, however much of what it prints is still read."""
    global _decided
    _decided = code
    return code


def decided() -> int:
    return _decided


def as_json(value: Any) -> None:
    """One JSON document is on stdout."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.flush()
    sys.stdout.buffer.write(text + b"\n")


def safe(text: str, *, keep: str = "\n\t") -> str:
    """Text in which nothing can steer a terminal: control characters are shown as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or not _steers(char) else _shown(char) for char in text)


def one_line(text: str) -> str:
    """Text for a table cell."""
    return safe(" ".join(text.split("\n")).replace("\t", " "), keep="")


def _steers(char: str) -> bool:
    code = ord(char)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or code in _DIRECTION


def _shown(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
