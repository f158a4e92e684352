"""Typer's form of the options of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar, cast

import typer

from ..core.options import OPTIONS, Option

F = TypeVar("F", bound=Callable[..., Any])


def takes_job_options(verb: str, **abouts: str) -> Callable[[F], F]:
    """The verb takes what a job can be given here, as ``**options``: by name, and only what was said.

    ``abouts``: lines of help of its own, for options whose default is not the usual one.
    """

    def takes(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[:-1]
        options = [_parameter(each, abouts.get(each.name)) for each in OPTIONS if verb in each.verbs.split()]
        names = {each.name for each in options}

        @wraps(function)
        def called(**given: Any) -> Any:
            unsaid = {name for name in names if given[name] is None or given[name] is False or given[name] == ()}
            return function(**{name: value for name, value in given.items() if name not in unsaid})

        last = next((place for place, each in enumerate(own) if each.kind is each.KEYWORD_ONLY), len(own))
        parameters = [*own[:last], *options, *own[last:]]
        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cast(F, called)

    return takes


def _parameter(option: Option, about: str | None) -> inspect.Parameter:
    word, default = option.form.word, option.default
    known = about is None and default is not None and word is not bool
    told = typer.Option(
        *option.flags, metavar=option.metavar, help=about or option.about, show_default=str(default) if known else False
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if word is bool else None,  # what was not said is left open, even if one can say the same
        annotation=Annotated[word if word is bool else word | None, told],
    )
