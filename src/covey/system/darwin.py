"""macOS alone: which boot of the machine this is. Not run on one by those who wrote it."""

from __future__ import annotations

import ctypes

NAME = b"kern.bootsessionuuid"


def boot_session() -> str | None:
    """A word that changes with every boot; None if the system does not tell."""
    size = ctypes.c_size_t(64)
    text = ctypes.create_string_buffer(size.value)
    try:
        failed = ctypes.CDLL(None).sysctlbyname(NAME, text, ctypes.byref(size), None, ctypes.c_size_t(0))
    except AttributeError:
        return None
    return None if failed else text.value.decode("ascii", "replace")[:36] or None
