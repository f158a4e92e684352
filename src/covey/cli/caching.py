"""The flags of `run` and `enqueue` about the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput

if TYPE_CHECKING:
    from ..core.model import Spec


def cached(specs: Sequence[Spec], given: dict[str, Any]) -> list[Spec]:
    """The jobs, which ask the cache if that was said. ``given``: cache, no_cache, refresh, tool."""
    said = {name: value for name, value in given.items() if value}
    if not said:
        return list(specs)
    if "cache" not in said:
        flag = "--" + next(iter(said)).replace("_", "-")
        raise InvalidInput(f"{flag} says how a command is cached; add --cache")
    if "no_cache" in said and "refresh" in said:
        raise InvalidInput("--no-cache keeps nothing and --refresh keeps what comes of it anew; give one of them")
    if any(spec.kind != "command" for spec in specs):
        raise InvalidInput("--cache is for commands; a task says in Python that it is cached: @app.task(cache=True)")
    from ..cache import Asked, Cache, cached_command

    asked: Asked = False if "no_cache" in said else "refresh" if "refresh" in said else True
    return [cached_command(spec, Cache(tools=said.get("tool", ())), asked) for spec in specs]
