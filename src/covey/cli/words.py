"""The words of a command inside a command line: whose option is whose."""

from __future__ import annotations

from typing import Any

import typer

from .coercion import PlainCommand

ARGV = "covey.argv"
AMBIGUOUS = "whose option is that, Covey's or the command's? put Covey's options first, or -- before the command"


class WordsCommand(PlainCommand):
    """Keeps what follows `--` apart, because there every word is meant as it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            split = args.index("--")
            ctx.meta[ARGV] = args[split + 1 :]
            args = args[:split]
        given = list(args)
        rest: list[str] = super().parse_args(ctx, args)
        words = list(ctx.params.get("words") or ())
        if len(words) > 1 and given[-len(words) :] != words and not ctx.resilient_parsing:
            ctx.fail(AMBIGUOUS)
        return rest


def argv_of(ctx: typer.Context) -> list[str] | None:
    """What followed `--`, or None if there was none."""
    found: list[str] | None = ctx.meta.get(ARGV)
    return found
