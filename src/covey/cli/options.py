"""Options and arguments that several verbs share, and typer's form of the options of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from ..core.options import OPTIONS, Option

F = TypeVar("F", bound=Callable[..., Any])

Db = Annotated[str | None, typer.Option("--db", metavar="PATH", help="The queue to use.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ref = Annotated[str, typer.Argument(metavar="JOB", help="An id or a key.", show_default=False)]
Refs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or keys.", show_default=False)]

CacheIt = Annotated[bool, typer.Option("--cache", help="Do not run what ran before (docs/cache.md).")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="With --cache: neither look nor keep.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="With --cache: run, and keep what comes of it anew.")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool", metavar="FILE", help="With --cache: a file, or 'PROGRAM --version', that the result depends on."
    ),
]

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="A line for the shell, a JSON object, words, or - for stdin."),
]


def takes_job_options(verb: str, **abouts: str) -> Callable[[F], F]:
    """The verb takes what a job can be given here, as ``**options``: by name, and only what was said.

    ``abouts``: lines of help of its own.
    """

    def takes(verb_function: F) -> F:
        signature = inspect.signature(verb_function, eval_str=True)
        own = list(signature.parameters.values())[:-1]
        before = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        after = [each for each in own if each.kind is each.KEYWORD_ONLY]
        options = [_parameter(each, abouts.get(each.name)) for each in OPTIONS if verb in each.verbs.split()]
        verb_function.__signature__ = signature.replace(parameters=[*before, *options, *after])  # type: ignore[attr-defined]
        return verb_function

    return takes


def _parameter(option: Option, about: str | None) -> inspect.Parameter:
    word = option.form.word
    told = typer.Option(
        *option.flags,
        metavar=option.metavar,
        help=about or option.about,
        show_default=str(option.default) if about is None and option.default not in (None, False) else False,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if word is bool else None,
        annotation=Annotated[word if word is bool else word | None, told],
    )


def said(options: dict[str, Any]) -> dict[str, Any]:
    """What typer was told, without what nobody said."""
    return {name: value for name, value in options.items() if value or type(value) is int or value == ""}
