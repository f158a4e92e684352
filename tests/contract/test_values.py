"""Odd values are refused at the door or come back unchanged, and never stop a report."""

from __future__ import annotations

import json

import pytest

from covey.core import codec
from covey.core.model import MAX_PAYLOAD, Output, Spec
from covey.engine.engine import Engine
from covey.errors import InvalidInput, TooLarge
from tests.kit import HandPool, command, python_task
from tests.kit.hand_pool import report

ODD = {
    "NUL": "a\x00b",
    "lone surrogate": "a\ud800b",
    "emoji": "🐦‍⬛ covey",
    "1 MiB": "x" * (1 << 20),
    "markup": "[red]\x1b[31mred\x1b[0m[/red]",
    "line ends": "a\r\nb\u2028c",
    "empty": "",
}


REFUSED = {"lone surrogate": InvalidInput, "1 MiB": TooLarge}


@pytest.mark.parametrize("what", sorted(ODD.keys() - REFUSED.keys()))
def test_an_argument_round_trips(engine: Engine, what: str) -> None:
    (made,) = engine.enqueue([Spec(task="t", args=codec.encode([ODD[what]], what="args"))])
    assert engine.job(made.id).args == [ODD[what]]


@pytest.mark.parametrize("what", REFUSED)
def test_an_argument_that_cannot_round_trip_is_refused_by_name(what: str) -> None:
    with pytest.raises(REFUSED[what], match="argument 'x'"):
        codec.encode([ODD[what]], what="argument 'x'")


@pytest.mark.parametrize("args", ["", "nothing like JSON", "[1", "NaN", '"\\ud800"', "[1] [2]"])
def test_arguments_that_are_not_json_are_refused_at_the_door(engine: Engine, args: str) -> None:
    with pytest.raises(InvalidInput):
        engine.enqueue([Spec(task="t", args=args)])
    assert sum(engine.status().counts.values()) == 0


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1: 2}, {"a": b"x"}, [object()], {"\ud800": 1}],
    ids=["nan", "inf", "number-key", "bytes", "object", "surrogate-key"],
)
def test_what_json_would_change_is_refused_with_the_place(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^args"):
        codec.encode({"k": [value]}, what="args")


def test_nesting_without_end_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInput, match="nested too deeply"):
        codec.encode(value, what="args")


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("field", ["error", "detail", "worker", "info", "result", "output"])
def test_a_report_with_an_odd_value_always_ends_the_run(engine: Engine, pool: HandPool, field: str, what: str) -> None:
    bad, good = engine.enqueue([command(max_attempts=1), command()])
    first, second = pool.claim(2)
    text = ODD[what]
    value: object = text
    if field in ("info", "result"):
        value = json.dumps(text, ensure_ascii=False)
    elif field == "output":
        value = Output(text.encode("utf-8", "surrogatepass"), b"\xff\xfe\x00")
    outcome = "success" if field in ("info", "result") else "failure"
    pool.turn(report(first, outcome, **{"error": "x", field: value}), report(second, "success"))
    job = engine.job(bad.id)
    assert job.state in ("completed", "dead")
    assert job.state == "completed" or job.error
    assert engine.job(good.id).state == "completed"
    shown = json.dumps([str(job), [str(attempt) for attempt in engine.history(bad.id)]], ensure_ascii=False)
    shown.encode()  # every view is valid text
    if field in ("info", "result") and what in ("emoji", "markup", "line ends", "empty"):
        assert getattr(job, field) == text


def test_a_result_over_the_limit_buries_the_job_with_a_reason(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([python_task("t")])
    pool.succeed(pool.claim_one(), result=json.dumps("x" * MAX_PAYLOAD))
    job = engine.job(made.id)
    assert (job.state, job.result) == ("dead", None)
    assert "result" in (job.error or "")


@pytest.mark.parametrize("result", ["", "not json", "{", '"\ud800"', "NaN"])
def test_a_result_that_is_not_json_buries_the_job_with_a_reason(engine: Engine, pool: HandPool, result: str) -> None:
    (made,) = engine.enqueue([python_task("t")])
    pool.succeed(pool.claim_one(), result=result)
    job = engine.job(made.id)
    assert (job.state, job.result) == ("dead", None)
    assert "result" in (job.error or "")
