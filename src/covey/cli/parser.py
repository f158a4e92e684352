"""The whole command line as a group that knows every verb by name and imports only the one that is called."""

from __future__ import annotations

import gc
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from .commands import GROUPS, HINTS, VERBS
from .job_input import is_whole
from .open_queue import choose_database, choose_token

ARGV = "covey.argv"


# ── words as values ─────────────────────────────────────────────────────────────────────────────────────────────────
# Typer converts every value through pydantic, whose import alone costs as much as all of typer. Our options are text,
# whole numbers, numbers and flags; for those a plain conversion is put in its place. It is typer's own hook, but not a
# documented one: where a version of typer lacks it, typer converts as it likes.


class PlainParams:
    """A command or group whose parameters of plain types convert themselves."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            if getattr(param, "_runtime_param", True) is None and kind in (str, int, float, bool, list[str]):
                param._runtime_param = PlainValue(kind)
        return params


class PlainCommand(PlainParams, typer.core.TyperCommand):
    pass


class PlainValue:
    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value in its type, or typer's own kind of usage error."""
        if self.kind == list[str]:
            return () if value is None else list(value)
        if value is None or isinstance(value, self.kind):
            return value
        try:
            return self.kind(value)
        except ValueError:
            what = "a whole number" if self.kind is int else "a number"
            raise typer.BadParameter(f"{value!r} is not {what}", ctx=ctx, param=param) from None


class WordsCommand(PlainCommand):
    """Everything after the first word is the command's, as with `ssh` and `sudo`; what follows `--` is kept apart.

    Unless that word is a whole line, a JSON object or `-`: behind those our options may follow.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = self._first_word(ctx, args)
        words: list[str] = []
        if first < len(args) and args[first] != "--" and not is_whole(args[first]):
            args, words = args[:first], args[first:]
        elif "--" in args:
            split = args.index("--")
            ctx.meta[ARGV] = args[split + 1 :]
            args = args[:split]
        rest: list[str] = super().parse_args(ctx, args)
        if words:
            ctx.params["words"] = words
        return rest

    def _first_word(self, ctx: Any, args: list[str]) -> int:
        """The place of the first argument that is neither an option nor its value."""
        takes = {
            name: not param.is_flag
            for param in self.get_params(ctx)
            for name in param.opts
            if hasattr(param, "is_flag")
        }
        place = 0
        while place < len(args):
            word = args[place]
            if word == "-" or word == "--" or not word.startswith("-"):
                return place
            name, given, _ = word.partition("=")
            if not word.startswith("--"):
                name, given = word[:2], word[2:]
            place += 1 + (takes.get(name, False) and not given)
        return place


def argv_of(ctx: typer.Context) -> list[str] | None:
    """What followed `--`, or None if there was none."""
    found: list[str] | None = ctx.meta.get(ARGV)
    return found


# ── verbs, loaded when they are called ──────────────────────────────────────────────────────────────────────────────


class LazyGroup(PlainParams, typer.core.TyperGroup):
    """A group that lists its verbs from a table and imports a verb's module when it is called."""

    table: dict[str, tuple[str, str]] = {}
    path: str = ""

    def __init__(self, **attrs: Any) -> None:
        attrs["commands"] = {name: _stub(name, about) for name, (_, about) in self.table.items()}
        super().__init__(**attrs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not self.path and args and args[0] in HINTS and args[0] not in self.table and not ctx.resilient_parsing:
            ctx.fail(f"there is no `covey {args[0]}`; here it is `{HINTS[args[0]]}`")
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
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Say which Covey this is.")
    ] = False,
) -> None:
    choose_database(db)
    choose_token(token_file)


def root() -> Any:
    """The whole command line as one lazy group."""
    app = typer.Typer(cls=Root, name="covey", context_settings={"help_option_names": ["-h", "--help"]})
    app.callback(help="A durable job queue: commands and Python functions, on one file.")(_options)
    return typer.main.get_command(app)
