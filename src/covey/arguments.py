"""What a function must look like to be a task, and which arguments it takes."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from .core import codec
from .errors import InvalidInput
from .worker.context import Context

NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_function(fn: Any) -> None:
    """A worker can import this function and run it; InvalidInput says why one could not."""
    if not inspect.isfunction(fn):
        raise InvalidInput(f"a {type(fn).__qualname__} cannot be a task; decorate a function that a module defines")
    name = f"{fn.__module__}.{fn.__qualname__}"
    if fn.__name__ == "<lambda>":
        raise InvalidInput(f"{name}: a lambda cannot be a task, because workers cannot import it; use def in a module")
    if "<locals>" in fn.__qualname__:
        raise InvalidInput(
            f"{name}: a nested function cannot be a task, because workers cannot import it; move it to the module"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidInput(f"{name}: a generator cannot be a task, because nobody would iterate it; return a list")


class Arguments:
    """A task's parameters as its callers see them: without the Context. Looked at once, used at every enqueue."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.name = name
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())
        contexts = [p for p in parameters if is_context(p.annotation, fn)]
        self.wants_context = bool(contexts)
        if contexts:
            if contexts != parameters[:1] or contexts[0].kind not in POSITIONAL:
                raise InvalidInput(f"{name}: the Context must be the first parameter, and the only one of its kind")
            self.context_name = parameters[0].name
            signature = signature.replace(parameters=parameters[1:])
        self.signature = signature
        self._least, self._most = _plain_counts(signature)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The call as JSON, `[[args…], {kwargs…}]`, None without arguments; InvalidInput if the task cannot take it."""
        # Binding costs 3 µs; a call with positional arguments only can be checked by counting them.
        if kwargs or not self._least <= len(args) <= self._most:
            self._bind(args, kwargs)
        if not args and not kwargs:
            return None
        return encode(self.name, args, kwargs, self.signature)

    def takes(self, name: str) -> bool:
        """Whether that name can be passed by keyword."""
        parameters = self.signature.parameters.values()
        return any(p.kind is Parameter.VAR_KEYWORD or (p.name == name and p.kind in NAMED) for p in parameters)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"{self.name}: {error}; it takes {self.signature}") from None


def encode(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], signature: Signature | None = None) -> str:
    """Arguments as JSON text; what is not JSON is named by its parameter, never shown."""
    try:
        return codec.encode([args, kwargs], what=f"arguments of {name}")
    except InvalidInput:
        names = dict(enumerate(signature.parameters)) if signature else {}
        for place, value in [*enumerate(args), *kwargs.items()]:
            if problem := codec.find_problem(value, f"{name}: argument {names.get(place, place)!r}"):  # type: ignore[call-overload]
                raise InvalidInput(problem) from None
        raise


def _plain_counts(signature: Signature) -> tuple[int, int]:
    """(least, most) positional arguments that surely fit; (1, 0), which fits nothing, if counting cannot tell."""
    parameters = signature.parameters.values()
    if any(p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty for p in parameters):
        return 1, 0
    plain = [p for p in parameters if p.kind in POSITIONAL]
    return sum(p.default is Parameter.empty for p in plain), len(plain)


def is_context(annotation: Any, fn: Callable[..., Any]) -> bool:
    """Whether a parameter's annotation is Context, also as text (``from __future__ import annotations``)."""
    if isinstance(annotation, str):
        text = annotation.strip("'\" ")
        if "Context" not in text:
            return False
        try:
            annotation = eval(text, inspect.unwrap(fn).__globals__)
        except Exception:
            return text in ("Context", "covey.Context")  # imported for type checkers only
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return Context in typing.get_args(annotation)
    return annotation is Context
