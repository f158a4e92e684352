"""Waiting gives up, but not because the machine is busy."""

from __future__ import annotations

import importlib

import pytest

from tests.kit.running import Watch

waiting = importlib.import_module("covey.testing.until")


def test_what_never_comes_true_is_given_up() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.05 s .*: the moon"):
        waiting.until(lambda: False, 0.05, "the moon")


def test_on_a_busy_machine_it_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(waiting, "slack", lambda: 1000.0)
    assert waiting.until(lambda: watch.s > 0.1, 0.001)


def test_slack_is_at_least_twice() -> None:
    assert waiting.slack() >= 2
