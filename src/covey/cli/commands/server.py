"""covey server: a queue for workers in containers and on other hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from ...errors import InvalidInput
from ..options import Db

Action = Annotated[
    str | None, typer.Argument(metavar="[stop]", help="stop: end the server of this queue.", show_default=False)
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="ADDRESS", help="Where to listen; repeatable. Else 127.0.0.1 only."),
]
Port = Annotated[int | None, typer.Option("--port", metavar="N", help="Else 8765, or COVEY_SERVER_PORT.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name by which clients call this server; repeatable."),
]
NeedsToken = Annotated[bool, typer.Option("--require-token", help="On the loopback too nobody comes in without one.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say only what went wrong.")]


def server(
    action: Action = None,
    host: Hosts = None,
    port: Port = None,
    allow_host: Names = None,
    require_token: NeedsToken = False,
    quiet: Quiet = False,
    db: Db = None,
) -> int:
    """Serve a queue over HTTP until Ctrl-C or `covey server stop`. Workers: `covey worker start --db http://…`."""
    from .. import serving

    if action == "stop":
        if host or port is not None or allow_host or require_token:
            raise InvalidInput("covey server stop takes no address; the server of this queue is meant")
        return serving.stop(db)
    if action is not None:
        raise InvalidInput(f"covey server {action}: there is only `covey server` and `covey server stop`")
    return serving.start(
        db,
        hosts=host or ["127.0.0.1"],
        port=port,
        names=allow_host or [],
        needs_token=require_token,
        quiet=quiet,
    )
