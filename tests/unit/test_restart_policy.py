"""Who is replaced how soon: for workers and for containers."""

from __future__ import annotations

import pytest

from covey.log import Log
from covey.pool.restart_policy import GIVE_UP, RestartPolicy, StartUp


@pytest.fixture
def policy() -> RestartPolicy:
    return RestartPolicy(short_life_s=1.0, backoff_s=(0.1, 5.0))


def test_who_was_never_ready_is_tried_ever_later_and_then_not_at_all(policy: RestartPolicy) -> None:
    waits = [policy.replace_after("sync", 60.0, was_ready=False) for _ in range(GIVE_UP)]
    assert waits == [0.0, *(pytest.approx(0.1 * 2**n) for n in range(GIVE_UP - 2)), None]


def test_a_life_that_was_worth_something_is_followed_by_another_at_once(policy: RestartPolicy) -> None:
    for lived_s, did_jobs in ((2.0, False), (0.1, True)):
        for _ in range(GIVE_UP - 1):
            policy.replace_after("sync", 0.1, was_ready=False)
        assert policy.replace_after("sync", lived_s, was_ready=True, did_jobs=did_jobs) == 0.0
        assert policy.replace_after("sync", 0.1, was_ready=False) == 0.0


def test_one_group_does_not_wait_for_another(policy: RestartPolicy) -> None:
    for _ in range(GIVE_UP):
        policy.replace_after(("shell", "sync"), 0.1, was_ready=False)
    assert policy.replace_after(("mail", "sync"), 0.1, was_ready=False) == 0.0


def test_who_is_ready_and_dies_young_is_never_given_up_however_often(policy: RestartPolicy) -> None:
    waits = [policy.replace_after("sync", 0.1, was_ready=True) for _ in range(3000)]
    assert set(waits[8:]) == {5.0}


def test_how_the_start_went_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("test", quiet=True)
    said: list[tuple[int, int, list[str]]] = []
    monkeypatch.setattr(
        log, "all_started", lambda ready, asked, seconds, failures: said.append((ready, asked, failures))
    )
    start_up = StartUp(log)
    start_up.ask(1)
    start_up.ask(1)
    start_up.succeeded("sync-1", 1)
    assert said == []
    start_up.failed("sync-2", "exited with code 1", 1)
    assert (said, start_up.nobody) == ([(1, 2, ["sync-2 (exited with code 1)"])], False)


def test_a_start_at_which_nobody_got_ready_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    start_up = StartUp(Log("test", quiet=True))
    start_up.ask(1)
    assert not start_up.nobody
    start_up.failed("sync-1", "exited with code 1", 0)
    assert start_up.nobody
