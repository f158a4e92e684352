"""The whole command line as a group that knows every verb by name and imports only the one that is called."""

from __future__ import annotations

import gc
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from .coercion import PlainCommand, PlainParams
from .commands import GROUPS, VERBS
from .open_queue import choose_database, choose_token


class LazyGroup(PlainParams, typer.core.TyperGroup):
    """A group that lists its verbs from a table and imports a verb's module when it is called."""

    table: dict[str, tuple[str, str]] = {}
    path: str = ""

    def __init__(self, **attrs: Any) -> None:
        attrs["commands"] = {name: _stub(name, about) for name, (_, about) in self.table.items()}
        super().__init__(**attrs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, (load(f"{self.path}{name}") if found else None), rest


class Root(LazyGroup):
    table = VERBS


def _stub(name: str, about: str) -> Any:
    """Enough of a command for `--help` and completion to name it."""
    return typer.core.TyperCommand(name=name, help=about, short_help=about)


def load(verb: str) -> Any:
    """The command of that verb (or of ``group verb``), ready to be called."""
    if verb in GROUPS:
        return _group(verb)
    group, _, name = verb.rpartition(" ")
    where, about = (GROUPS[group] if group else VERBS)[name]
    module, _, function = where.partition(":")
    from importlib import import_module

    called = getattr(import_module(f"covey.cli.commands.{module}"), function or name)
    app = typer.Typer(add_completion=False)
    app.command(name, cls=getattr(called, "command_class", PlainCommand), help=called.__doc__ or about)(called)
    command = typer.main.get_command(app)
    gc.enable()  # the verb may run for long
    return command


def _group(name: str) -> Any:
    members = type("Members", (LazyGroup,), {"table": GROUPS[name], "path": f"{name} "})
    app = typer.Typer(add_completion=False, cls=members, name=name, help=VERBS[name][1])
    app.callback()(lambda: None)
    return typer.main.get_command(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"covey {__version__}")
        raise typer.Exit


def _options(
    db: Annotated[str | None, typer.Option("--db", metavar="PATH", help="The queue to use.")] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="For --db http://…: the file with the token.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which Covey this is.")
    ] = False,
) -> None:
    choose_database(db)
    choose_token(token_file)


def root() -> Any:
    """The whole command line as one lazy group."""
    app = typer.Typer(cls=Root, name="covey", context_settings={"help_option_names": ["-h", "--help"]})
    app.callback(help="A durable job queue: commands and Python functions, on one file.")(_options)
    return typer.main.get_command(app)
