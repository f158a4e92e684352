"""Supervisors with the fake engine. Each test leaves no container and no process behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.system import process_tree
from tests.kit.running import Yard

from .dock import Dock


@pytest.fixture
def dock(tmp_path: Path) -> Iterator[Dock]:
    # Containers outlive a supervisor that was killed, and this process would inherit them otherwise.
    assert os.getpid() != 1
    with Yard(tmp_path) as yard:
        made = Dock(yard)
        yield made
        for pool in yard.pools:
            if pool.process.poll() is None:
                pool.stop()
        left = made.close()
        process_tree.kill_marked(yard.mark)
    assert not left, f"containers were left: {left}"


# The rest runs with full figures: each of these tests starts a supervisor, a server and containers.
LATER = (
    "test_a_start_that_comes_late_of_a_killed_supervisor_is_found_by_the_running_one",
    "test_worker_stop_reaches_the_supervisor",
    "test_a_supervisor_that_breaks_while_containers_start_removes_them_all_the_same",
    "test_drain_ends_when_nothing_is_left_to_do",
    "test_without_its_parent_it_ends",
    "test_a_container_whose_pool_cannot_start_is_said_with_its_last_words",
    "test_containers_that_die_young_are_replaced_ever_later",
    "test_an_engine_without_events_is_asked_all_the_same",
    "test_starts_are_limited_and_go_on_in_parallel",
    "test_no_process_of_a_removed_container_lives",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("COVEY_PROOF") != "full":
        items[:] = [item for item in items if item.name not in LATER]
