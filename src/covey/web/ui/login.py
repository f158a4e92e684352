"""The door: with a token, or with a link that lets in once; and what is said when a page cannot be shown."""

from __future__ import annotations

from .html import a, button, code, form, input_, label, p
from .page import Shown
from .parts import hidden, note
from .visit import Query, address

SPENT = "this link has been used, or it is older than a minute; `covey ui` makes another"


def safe(target: str, prefix: str) -> str:
    """Where to go after login: a page of ours, whoever has written the link."""
    home = address(prefix)
    fine = target == home or target.startswith((f"{home}/", f"{home}?"))
    return target if fine and "\\" not in target and "\n" not in target and "\r" not in target else home


def form_of(prefix: str, fields: Query, problem: str | None = None) -> Shown:
    where = address(prefix, "login")
    kept = hidden(next=safe(fields.get("next", ""), prefix))
    said = note("bad", problem) if problem else None
    if once := fields.get("once"):
        return Shown(
            "Come in",
            [
                said,
                p("This link lets you in once, as the owner of the queue."),
                form(
                    kept,
                    hidden(once=once),
                    button("Open the dashboard", type="submit", class_="button main"),
                    method="post",
                    action=where,
                ),
            ],
            status=401 if problem else 200,
        )
    return Shown(
        "Log in",
        [
            said,
            form(
                kept,
                input_(type="text", name="user", value="token", autocomplete="username", hidden=True),
                label("Token", for_="token"),
                input_(
                    id="token",
                    name="token",
                    type="password",
                    autocomplete="current-password",
                    required=True,
                    autofocus=True,
                    spellcheck="false",
                    aria_describedby="hint",
                ),
                button("Log in", type="submit", class_="button main"),
                method="post",
                action=where,
                class_="stack",
            ),
            p(
                "A token is made with ",
                code("covey token create NAME --role read"),
                "; on the queue's own host ",
                code("covey ui"),
                " opens this page without one.",
                id="hint",
                class_="dim",
            ),
        ],
        status=401 if problem else 200,
    )


WORDS = {401: "Log in first", 403: "Not for this token", 404: "There is no such thing", 504: "That took too long"}


def problem(prefix: str, status: int, text: str) -> Shown:
    home = p(a("To the overview", href=address(prefix)))
    return Shown(WORDS.get(status, "That cannot be done"), [note("bad", text), home], status=status)
