"""A reader that holds a snapshot makes the log grow, and it shrinks again."""

from __future__ import annotations

import os
from collections.abc import Callable

from covey.engine.engine import Engine
from tests.kit import command


def test_the_write_ahead_log_shrinks_again_after_a_long_reader(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    writer, reader = opened(path), opened(path)
    limit, wal = 64 << 20, f"{path}-wal"
    with reader.store.snapshot():
        assert reader.store.ask("counts") == []
        while os.path.getsize(wal) < proof(limit + (8 << 20), 4 * limit):
            writer.enqueue([command("x" * 200_000) for _ in range(40)])
        assert reader.store.ask("counts") == []  # still the same moment
    for _ in range(20):  # ordinary traffic is all it takes
        writer.enqueue([command("x" * 200_000)])
        if os.path.getsize(wal) <= limit:
            break
    assert os.path.getsize(wal) <= limit


def test_an_undisturbed_log_stays_small(path: str, opened: Callable[[str], Engine]) -> None:
    writer = opened(path)
    for _ in range(60):
        writer.enqueue([command("x" * 100_000) for _ in range(10)])
    assert os.path.getsize(f"{path}-wal") <= 32 << 20


def test_a_reader_sees_one_moment_while_writers_go_on(path: str, opened: Callable[[str], Engine]) -> None:
    writer, reader = opened(path), opened(path)
    writer.enqueue([command()])
    with reader.store.snapshot():
        assert reader.store.ask("counts") == [("default", "pending", 1)]
        writer.enqueue([command(), command()])
        assert reader.store.ask("counts") == [("default", "pending", 1)]
    assert reader.store.ask("counts") == [("default", "pending", 3)]
