"""Bugs that are planted in the cache, and the tests that must find them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.blobs import placing
from covey.blobs.directory import Directory
from covey.core import cache_key
from covey.core.cache_key import Parts
from covey.core.model import Report
from covey.engine import cache_records, flights
from covey.engine.engine import Engine
from covey.engine.reports import Reports
from covey.engine.trees import Trees
from covey.open import open_engine
from covey.testing import FakeClock
from tests.contract import test_cache as contract
from tests.kit import HandPool
from tests.unit import test_blobs as blobs

Plant = Callable[[pytest.MonkeyPatch], None]


def a_failure_is_stored(patch: pytest.MonkeyPatch) -> None:
    apply_one = Reports._apply_one

    def keeps_all(self: Any, report: Report, row: Any, pool: int, reply: Any, trees: Trees) -> bool:
        moved = apply_one(self, report, row, pool, reply, trees)
        if row is not None and row.cache_key is not None:
            cache_records.keep(self._store, [report], trees.now)
        return moved

    patch.setattr(Reports, "_apply_one", keeps_all)


def a_key_lacks_the_arguments(patch: pytest.MonkeyPatch) -> None:
    text = Parts.text
    patch.setattr(Parts, "text", lambda self: text(Parts(self.task, self.code)))
    patch.setattr(cache_key, "is_call", lambda *_: True)


def a_key_lacks_the_queue(patch: pytest.MonkeyPatch) -> None:
    key_of = cache_key.key_of
    patch.setattr(cache_key, "key_of", lambda parts, queue, salt="": key_of(parts, "", salt))


def what_ran_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cache_records, "why_not", lambda *_: None)


def a_follower_waits_for_a_snoozed_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Trees, "moved", lambda self, row: None)


def a_flight_that_ended_frees_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flights, "free", lambda trees, key: None)


def an_heir_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    def forgets(trees: Trees, key: str) -> None:
        free(trees, key)
        trees.store.ask("end_flight", key=key)

    free = flights.free
    patch.setattr(flights, "free", forgets)


def a_refresh_keeps_the_old_result(patch: pytest.MonkeyPatch) -> None:
    record = cache_records._record
    patch.setattr(cache_records, "Call", lambda *row: _Call(*row)._replace(refresh=0))
    assert record is not None


_Call = cache_records.Call

IN_THE_ENGINE: list[tuple[Plant, Callable[..., None], dict[str, Any]]] = [
    (a_failure_is_stored, contract.test_no_other_end_of_a_run_is_kept, {"outcome": "failure"}),
    (
        a_key_lacks_the_arguments,
        contract.test_another_argument_code_or_queue_is_another_call,
        {"other": lambda: contract.ask(2)},
    ),
    (
        a_key_lacks_the_queue,
        contract.test_another_argument_code_or_queue_is_another_call,
        {"other": lambda: contract.ask(queue="other")},
    ),
    (
        what_ran_is_not_compared,
        contract.test_a_success_is_kept_only_under_the_key_of_what_ran,
        {"ran": contract.parts(version="2"), "why": "code"},
    ),
    (
        a_follower_waits_for_a_snoozed_flight,
        contract.test_when_a_flight_ends_otherwise_one_follower_is_the_next,
        {"outcome": "snooze"},
    ),
    (
        a_flight_that_ended_frees_nobody,
        contract.test_of_many_jobs_with_one_key_one_runs_and_all_have_its_result,
        {},
    ),
    (
        an_heir_is_not_remembered,
        contract.test_a_follower_that_was_to_be_next_and_is_not_makes_way_for_another,
        {"change": "cancel"},
    ),
    (a_refresh_keeps_the_old_result, contract.test_a_refresh_runs_and_its_result_is_the_new_one, {}),
]


@pytest.fixture
def queue(tmp_path: Path) -> Engine:
    engine = open_engine(str(tmp_path / "queue.db"))
    engine.clock = FakeClock()
    return engine


@pytest.mark.parametrize(("plant", "test", "given"), IN_THE_ENGINE, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bug_in_the_engine_is_found(
    queue: Engine, monkeypatch: pytest.MonkeyPatch, plant: Plant, test: Callable[..., None], given: dict[str, Any]
) -> None:
    def told() -> dict[str, Any]:
        return {name: value() if callable(value) else value for name, value in given.items()}

    try:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            with pytest.raises((AssertionError, ValueError)):
                test(queue, HandPool(queue), **told())
    finally:
        queue.close()


def placing_is_not_all_or_nothing(patch: pytest.MonkeyPatch) -> None:
    fetch = placing._fetch

    def at_once(root: str, output: placing.Output, kept: Any) -> tuple[str, str]:
        temporary, target = fetch(root, output, kept)
        os.rename(temporary, target)
        open(temporary, "w").close()
        return temporary, temporary

    patch.setattr(placing, "_fetch", at_once)


def blobs_are_hard_links(patch: pytest.MonkeyPatch) -> None:
    add_file = Directory.add_file

    def linked(self: Directory, path: str) -> Any:
        stored = add_file(self, path)
        os.unlink(self.path(stored.digest))
        os.link(path, self.path(stored.digest))
        return stored

    patch.setattr(Directory, "add_file", linked)


def a_damaged_blob_is_given_away(patch: pytest.MonkeyPatch) -> None:
    def unchecked(self: Directory, fd: int, digest: str) -> Any:
        with open(fd, "rb") as file:
            yield file.read()

    patch.setattr(Directory, "_checked", unchecked)


def what_is_added_again_stays_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "utime", lambda *_, **__: None)


IN_BLOBS: list[tuple[Plant, Callable[..., None], tuple[Any, ...]]] = [
    (placing_is_not_all_or_nothing, blobs.test_if_one_blob_is_missing_no_target_is_touched, ()),
    (blobs_are_hard_links, blobs.test_outputs_become_read_only_copies_which_a_later_edit_does_not_reach, ()),
    (a_damaged_blob_is_given_away, blobs.test_a_damaged_blob_is_missing_and_no_more, (b"x",)),
]


@pytest.mark.parametrize(("plant", "test", "given"), IN_BLOBS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_bug_in_the_blobs_is_found(
    tmp_path: Path, plant: Plant, test: Callable[..., None], given: tuple[Any, ...]
) -> None:
    directory = Directory(str(tmp_path / "blobs"))
    arguments = {"damage": given[0]} if given else {"tmp_path": tmp_path}
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            test(directory, **arguments)


def test_a_blob_that_stays_old_when_it_is_added_again_would_be_collected(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path / "blobs"))
    directory.add(blobs.NAME, [blobs.HELLO])
    os.utime(directory.path(blobs.NAME), (0, 0))
    with pytest.MonkeyPatch.context() as patch:
        what_is_added_again_stays_old(patch)
        directory.add(blobs.NAME, [blobs.HELLO])
    assert directory.collect(set(), 1e10) > 0
