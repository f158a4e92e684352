"""Words as numbers, without the schema library that typer would load for it.

Typer converts every value through pydantic, whose import alone costs as much as all of typer. Our options are text,
whole numbers, numbers and flags; for those a plain conversion is put in its place. It is typer's own hook, but not a
documented one: where a version of typer lacks it, typer converts as it likes.
"""

from __future__ import annotations

from typing import Any

import typer
import typer.core


class PlainParams:
    """A command or group whose parameters of plain types convert themselves."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            if getattr(param, "_runtime_param", True) is None and kind in (str, int, float, bool, list[str]):
                param._runtime_param = Plain(kind)
        return params


class PlainCommand(PlainParams, typer.core.TyperCommand):
    pass


class Plain:
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
