"""A queue behind a server: whether it answers, lets us in and fits. Its database is that host's to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ...errors import CoveyError, Unauthorized
from .check_result import Finding, Verdict, bad, ok, warn
from .host import drift

if TYPE_CHECKING:
    from ...core.view import Status
    from ...remote.remote import Remote

VERDICTS: dict[str, Verdict] = {"note": "ok", "warning": "warn", "broken": "bad"}


def look(url: str) -> Iterator[Finding]:
    from ... import __version__
    from ..open_queue import open_queue

    try:
        queue = cast("Remote", open_queue(url))
        info = queue.server()
        text = f"{url}, Covey {info.version}, queue {info.database_id}"
        if info.version == __version__:
            yield ok("server", text)
        else:
            yield warn("server", text, f"this is {__version__}; upgrade the older of the two")
        if info.now is not None:
            yield drift("the server's clock", info.now)
        yield from of_status(queue.status())
    except Unauthorized as error:
        yield bad("token", str(error), "set COVEY_TOKEN_FILE or pass --token-file")
    except CoveyError as error:
        yield bad("server", str(error), "on that host: `covey server`, then `covey doctor`")


def of_status(status: Status) -> Iterator[Finding]:
    """What `covey status` would say."""
    for found in status.findings:
        yield Finding("queue", VERDICTS[found.level], found.text, found.advice)
