"""covey ui: the dashboard in a browser, for a queue with or without a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from ...errors import Refused
from ..open_queue import database, open_database
from ..options import Db
from ..printing import answer, note

Port = Annotated[int, typer.Option("--port", metavar="N", help="Where to listen; else any port that is free.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the link, and open nothing.")]


def ui(port: Port = 0, no_browser: NoBrowser = False, db: Db = None) -> int:
    """Open the dashboard of a queue; without a running server, until Ctrl-C.

    The link lets in once, within a minute, as the owner of the queue: whoever may read its file.
    """
    url = database(db)
    if url.startswith(("http://", "https://")):
        _show(f"{url.rstrip('/')}/ui", opens=not no_browser)
        return 0
    from ...discovery import found
    from .. import serving

    engine = open_database(url, create=True)
    running = found(engine.place.side)
    if running is not None:
        _show(_link(running.url, engine.place.side, engine.database_id), opens=not no_browser)
        return 0
    return serving.start(
        db,
        hosts=["127.0.0.1"],
        port=port,
        names=[],
        needs_token=True,
        quiet=True,
        shown=lambda link: _show(link, opens=not no_browser, stays=True),
    )


def _link(base: str, side: str, database_id: str) -> str:
    """Lets in to a server that runs already; it has the same key."""
    try:
        from ...web.sessions import Sessions, key_of
    except ImportError as error:
        raise Refused(f"the dashboard needs more packages ({error}); pip install 'covey[server]'") from None
    from ... import env

    return f"{base}/ui/login?once={Sessions(key_of(side), database_id).once(env.now())}"


def _show(link: str, *, opens: bool, stays: bool = False) -> None:
    answer(link)
    if stays:
        note("the dashboard runs until Ctrl-C; the link lets in once, within a minute")
    if opens:
        import webbrowser

        webbrowser.open(link)
