"""Time zones: from the system's database or from the package tzdata, whichever is newer.

`zoneinfo` alone asks the system's first, however old that is; a machine that is never updated then runs a nightly job
at the wrong hour in every zone whose rules have changed since.
"""

from __future__ import annotations

import importlib.util
import os.path
import re
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from ..errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


class Source(NamedTuple):
    """One database of zones: a directory of files, and the release of the IANA's data that they were made of."""

    name: str
    directory: str
    version: str  # 2026f; "" = it does not say


@lru_cache(maxsize=1)
def sources() -> list[Source]:
    """What this machine has, the newest first."""
    return newest_first(system_directories=zoneinfo.TZPATH, package=_package_directory())


def newest_first(*, system_directories: Sequence[str], package: str | None) -> list[Source]:
    found = [Source("package tzdata", package, _version(package))] if package else []
    found += [Source("system", each, _version(each)) for each in system_directories if os.path.isdir(each)]
    return sorted(found, key=lambda source: source.version, reverse=True)


def version() -> str | None:
    """The release that zones are taken from here; None without any."""
    return sources()[0].version if sources() else None


@lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """The rules of a zone; InvalidInput for a name that nobody knows."""
    if name == "UTC":
        return UTC
    return zone_from(sources(), name)


def zone_from(sources: Sequence[Source], name: str) -> tzinfo:
    if _NAME.fullmatch(name):
        for source in sources:
            try:
                with open(os.path.join(source.directory, name), "rb") as file:
                    return ZoneInfo.from_file(file, key=name)
            except (OSError, ValueError):
                continue
    if not sources:
        raise InvalidInput(f"time zone {name!r}: this machine knows no zones; install the package tzdata")
    raise InvalidInput(
        f"time zone {name!r} is not known; write its name as in Europe/Berlin or America/New_York, or UTC"
    )


def _package_directory() -> str | None:
    found = importlib.util.find_spec("tzdata")
    places = (found.submodule_search_locations if found else None) or []
    return next((os.path.join(place, "zoneinfo") for place in places), None)


def _version(directory: str) -> str:
    """As the database says it itself: in the first line of its source, which stands beside the files."""
    try:
        with open(os.path.join(directory, "tzdata.zi"), encoding="ascii", errors="replace") as file:
            found = re.match(r"# version (\S+)", file.readline())
    except OSError:
        return ""
    return found[1] if found else ""
