"""Logs for programs: an object a line."""

from __future__ import annotations

import json

import pytest

from covey.log import Log


def test_each_line_is_an_object_that_names_its_event(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_LOG_FORMAT", "json")
    log = Log("pool 3")
    log.started(3, 77, 'a "queue"\nof two lines')
    log.server_stopped()
    one, two = map(json.loads, capsys.readouterr().err.splitlines())
    assert one["msg"] == 'pool 3 (pid 77) works on a "queue"\nof two lines'
    assert (one["source"], one["level"], one["event"]) == ("pool 3", "info", "started")
    assert two["event"] == "server_stopped"


def test_without_it_lines_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Log("server").server_stopped()
    assert not capsys.readouterr().err.startswith("{")
