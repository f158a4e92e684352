"""covey config: settings that live in the queue and hold for everyone who uses it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..open_queue import open_queue
from ..options import Db, Json
from ..printing import answer, as_json

if TYPE_CHECKING:
    from ...core.ports import Client

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A setting; `covey config list` shows them.", show_default=False)
]


def list_settings(json: Json = False, db: Db = None) -> None:
    """List every setting: its value, its default, where the value comes from, what it does."""
    engine = open_queue(db)
    rows = _rows(engine)
    if json:
        as_json(rows)
        return
    from .. import render

    render.table(
        ["SETTING", "VALUE", "DEFAULT", "FROM", "WHAT IT DOES"],
        [(row["name"], text(row["value"]), text(row["default"]), row["source"], row["about"]) for row in rows],
        wide="WHAT IT DOES",
    )


def get(name: Name, json: Json = False, db: Db = None) -> None:
    """Print one setting's value."""
    from ...settings import find

    wanted = find(name).name
    engine = open_queue(db)
    row = next(row for row in _rows(engine) if row["name"] == wanted)
    if json:
        as_json(row)
    else:
        answer(text(row["value"]))


def set_value(
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What it shall be.", show_default=False)],
    db: Db = None,
) -> None:
    """Change one setting for everything that is queued or started from now on."""
    from ...settings import parse

    parse(name, value)  # a mistake shall not create a database
    engine = open_queue(db, create=True)
    key, taken = engine.set_setting(name, value)
    answer(f"{key} = {text(taken)}")


def unset(name: Name, db: Db = None) -> None:
    """Go back to the default."""
    from ...settings import SETTINGS, find

    find(name)
    engine = open_queue(db)
    key = engine.unset_setting(name)
    answer(f"{key} = {text(SETTINGS[key].default)}")


def text(value: Any) -> str:
    """A value as it would be typed."""
    if value is None:
        return "never"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _rows(engine: Client) -> list[dict[str, Any]]:
    from ...settings import SETTINGS

    stored, values = engine.stored_settings(), engine.settings()
    return [
        {
            "name": setting.name,
            "value": values[setting.name],
            "default": setting.default,
            "source": "env"
            if setting.env and os.environ.get(setting.env)
            else "db"
            if setting.name in stored
            else "default",
            "env": setting.env,
            "about": setting.about,
        }
        for setting in SETTINGS.values()
    ]
