"""Functions to make tasks of: what users write in their modules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from covey import Children, Context

if TYPE_CHECKING:
    from decimal import Decimal


def add(a: int, b: int = 1) -> int:
    return a + b


def other_add(a: int, b: int = 1) -> int:
    return a + b


def nothing() -> None:
    return None


def join(*words: str, sep: str = " ") -> str:
    return sep.join(words)


def keyword_only(*, path: str, size: int = 1) -> str:
    return path * size


def with_context(ctx: Context, name: str) -> str:
    return f"{ctx.task} {ctx.job_id} {name}"


def with_optional_context(ctx: Context | None, name: str) -> str:
    return f"{ctx is None} {name}"


def with_unresolvable_annotation(ctx: Context, price: Decimal) -> str:
    return str(price)


def late_context(name: str, ctx: Context) -> str:
    return name


def keyword_context(*, ctx: Context) -> None:
    return None


async def fetch(url: str) -> int:
    return len(url)


async def fetch_with_context(ctx: Context, url: str) -> int:
    return ctx.attempt


def words(text: str) -> Iterator[str]:
    yield from text.split()


async def awords(text: str) -> AsyncIterator[str]:
    yield text


def takes_anything(value: Any) -> Any:
    return value


class Owner:
    @staticmethod
    def static(name: str) -> str:
        return name


def make_nested() -> Any:
    def nested() -> None:
        return None

    return nested


identity = lambda value: value  # noqa: E731


def keyed(key: str) -> str:
    return key


def merge(ctx: Context, children: Children) -> dict[str | None, Any]:
    return {child.key: child.result for child in children}


def merge_plainly(children: Children) -> int:
    return len(children)
