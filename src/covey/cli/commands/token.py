"""covey token: who may use the HTTP server."""

from __future__ import annotations

from typing import Annotated

import typer

from ..open_queue import open_database
from ..options import Db, Json
from ..printing import answer, as_json, note

Name = Annotated[str, typer.Argument(metavar="NAME", help="What to call it; never given twice.", show_default=False)]
Ref = Annotated[str, typer.Argument(metavar="NAME|ID", help="Name or id of a token.", show_default=False)]
Role = Annotated[
    str, typer.Option("--role", metavar="read|client|worker|admin", help="What it may.", show_default=False)
]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", "-q", metavar="NAME", help="Only for this queue; repeatable. Else all.")
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="It holds for 12h, 30d …; else until it is revoked.")
]


def create(
    name: Name, role: Role, queue: Queues = None, expires: Expires = None, json: Json = False, db: Db = None
) -> None:
    """Make a token for the HTTP server and print it. It is shown this once and stored nowhere."""
    from ...core.times import seconds

    expires_s = None if expires is None else seconds(expires, "--expires")
    view, text = open_database(db, create=True).create_token(name, role, queues=queue or None, expires_s=expires_s)
    if json:
        from msgspec.structs import asdict

        as_json(asdict(view) | {"token": text})
    else:
        answer(text)
    note(f"this is shown only once: the token {name}, id {view.id}; keep it secret")


def list_tokens(json: Json = False, db: Db = None) -> None:
    """List tokens, also those that no longer hold. Their texts cannot be shown again."""
    found = open_database(db).tokens()
    if json:
        as_json(found)
        return
    if not found:
        note("no tokens yet; `covey token create NAME --role client` makes one")
        return
    from .. import render

    render.table(
        ["ID", "NAME", "ROLE", "STATE", "EXPIRES", "CREATED", "QUEUES"],
        [
            (
                view.id,
                view.name,
                view.role,
                render.state(view.state),
                view.expires_at or "never",
                view.created_at,
                "all" if view.queues is None else ", ".join(view.queues),
            )
            for view in found
        ],
        wide="QUEUES",
    )


def revoke(token: Ref, db: Db = None) -> None:
    """Let nobody in with a token any more. The server knows within a second."""
    view = open_database(db).revoke_token(token)
    answer(f"revoked {view.name}")
