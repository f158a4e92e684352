"""The queue's own matters: where it is, its settings, who may come in."""

from __future__ import annotations

from typing import Any

from ... import __version__
from ...core import bodies
from ...core.view import Status
from ...settings import SETTINGS
from .html import Content, p, span
from .page import Page, Shown
from .parts import ago, badge, block, command_line, empty, facts, grid
from .visit import Visit


def show(visit: Visit) -> Shown:
    parts: list[Content] = []
    if visit.may("status"):
        status: Status = visit.ask("status")
        about = facts(
            ("database", span(status.database, class_="mono")),
            ("id", span(status.database_id, class_="mono")),
            ("schema", f"{status.schema}"),
            ("durability", status.durability),
            ("version", __version__),
            ("jobs", f"{sum(status.counts.values()):,}"),
        )
        parts.append(block("The queue", about, key="queue"))
    parts.append(block("Settings", _settings(visit), key="settings"))
    if visit.guest.role == "admin":
        parts.append(block("Tokens", _tokens(visit), key="tokens"))
    parts.append(
        block(
            "By hand",
            p("What a server cannot do for you, its host can: ", class_="dim"),
            [
                p(command_line(line))
                for line in ("covey doctor", "covey db check", "covey db backup FILE", "covey db prune --keep 7d")
            ],
            key="hand",
        )
    )
    return Shown("System", parts)


def _settings(visit: Visit) -> Content:
    found: bodies.Settings = visit.ask("settings")

    def row(name: str) -> list[Content]:
        value: Any = found.effective.get(name)
        here = badge("set here", "run") if name in found.stored else span("default", class_="dim")
        return [
            span(name, class_="mono"),
            span("never" if value is None else str(value), class_="mono"),
            here,
            span(SETTINGS[name].about, class_="dim"),
        ]

    columns = (("setting", ""), ("value", ""), ("from", "w2"), ("what it is", "grow w1"))
    return grid(columns, ((f"setting-{name}", row(name)) for name in SETTINGS), label="settings")


def _tokens(visit: Visit) -> Content:
    tokens = visit.engine.tokens()
    if not tokens:
        return empty("No token: nobody comes in from elsewhere. ", command_line("covey token create NAME --role read"))
    rows = (
        (
            f"token-{token.id}",
            [
                token.name,
                token.role,
                ", ".join(token.queues) if token.queues else span("every queue", class_="dim"),
                badge(token.state, {"valid": "good"}.get(token.state, "off")),
                ago(token.expires_at, visit.now) if token.expires_at else span("never", class_="dim"),
            ],
        )
        for token in tokens
    )
    columns = (("token", "grow"), ("role", ""), ("queues", "w2"), ("state", ""), ("expires", "w1"))
    return grid(columns, rows, label="tokens")


PAGE = Page(path="system", show=show, needs="settings", name="System", key="s")
