"""Worker types: a queue with workers of its own. A pool without them has one type that serves all that it serves."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..core.model import Kind


class Type(Struct, frozen=True):
    name: str  # its queue; "" for the one type of a pool without types
    queues: tuple[str, ...] | None  # None = every queue
    count: int  # commands and sync tasks at a time
    root: int | None = None  # only jobs of that tree

    def title(self, kind: Kind) -> str:
        """What people call its workers of that kind."""
        return f"{self.name} ({kind})" if self.name else kind


class Types:
    """The types of one pool, found by queue."""

    def __init__(self, types: tuple[Type, ...]) -> None:
        self._types = types
        self._by_name = {type.name: type for type in types}
        self._only = types[0].name if len(types) == 1 else None

    def __iter__(self) -> Iterator[Type]:
        return iter(self._types)

    def __getitem__(self, name: str) -> Type:
        return self._by_name[name]

    @property
    def queues(self) -> tuple[str, ...] | None:
        """What the pool serves in all."""
        if any(type.queues is None for type in self._types):
            return None
        return tuple(queue for type in self._types for queue in type.queues or ())

    @property
    def count(self) -> int:
        return sum(type.count for type in self._types)

    def of(self, queue: str) -> str:
        """Whose jobs those of a queue are."""
        return queue if self._only is None else self._only

    def serving(self, queues: tuple[str, ...] | None) -> str:
        """The type that wants from these queues."""
        return self._only if self._only is not None else queues[0] if queues else ""


def shrunk(types: Types, counts: dict[str, int]) -> Types:
    """The same with those counts."""
    return Types(tuple(Type(type.name, type.queues, counts[type.name], type.root) for type in types))


def plain(count: int, queues: tuple[str, ...] | None, root: int | None = None) -> Types:
    """A pool without types."""
    return Types((Type("", queues, count, root),))


def typed(counts: dict[str, int]) -> Types:
    """A type for each of these queues; a count of 0 disables one."""
    return Types(tuple(Type(queue, (queue,), count) for queue, count in counts.items() if count))
