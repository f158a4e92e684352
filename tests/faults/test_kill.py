"""Random kills while clients enqueue and cancel; and bugs planted on purpose, which the same checker must find."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tools.torture import __main__ as tool
from tools.torture import evidence
from tools.torture.checks import CHECKS, Findings, verdict
from tools.torture.evidence import Evidence
from tools.torture.jobs import DIRECTORY
from tools.torture.mutants import caught
from tools.torture.report import page
from tools.torture.run import Torture

from covey.open import open_engine
from tests.kit.postgres import Given, Server

Proof = Callable[[int, int], int]
Over = tuple[Torture, Findings]


@pytest.fixture(scope="module")
def over(own_temp: None, tmp_path_factory: pytest.TempPathFactory, proof: Proof) -> Over:
    """A run on a file, when all is over."""
    directory = tmp_path_factory.mktemp("torture")
    torture = Torture(directory, jobs=proof(120, 2000), kills=proof(12, 200), seed=proof(1, 2))
    return torture, torture.run()


def test_nothing_is_lost_doubled_or_charged_wrongly_under_random_kills(over: Over, proof: Proof) -> None:
    torture, found = over
    assert found.problems == []
    assert found.kills.total() == torture.kills
    # With few kills on a busy machine, the clients may be done before their card is dealt.
    kinds = ("pool", "zygote", "worker", "command", "client")[: proof(4, 5)]
    assert min(found.kills[kind] for kind in kinds) > 0
    assert found.figures["trees"] > 10
    assert found.figures["backups of the living file"] > 0


def test_the_same_on_postgresql(tmp_path: Path, proof: Proof, server: Server | Given) -> None:
    with queue_in(server) as url:
        torture = Torture(tmp_path, jobs=proof(100, 2000), kills=proof(10, 200), seed=proof(4, 5), url=url, limit_s=300)
        found = torture.run()
    assert found.problems == []
    assert found.kills.total() == torture.kills


# ── the checker can fail ────────────────────────────────────────────────────────────────────────────────────────────


def test_planted_bugs_are_caught_each_by_its_own_check(tmp_path: Path) -> None:
    bugs = ["no_fence", "early_answer", "counted_late", "live_copy"]
    found = Torture(tmp_path, jobs=100, kills=5, seed=3, mutants=bugs, still_s=4).run()
    assert [bug for bug in bugs if not caught(bug, found)] == [], found.problems[:5]


def test_a_planted_bug_is_caught_on_postgresql(tmp_path: Path, server: Server | Given) -> None:
    with queue_in(server) as url:
        found = Torture(tmp_path, jobs=120, kills=6, seed=3, mutants=["no_fence"], still_s=6, url=url).run()
    assert any("went from cancelled to completed" in problem for problem in found.problems), found.problems[:5]


def lose_a_row(seen: Evidence) -> None:
    seen.rows.pop(next(request.ids[0] for request in seen.requests if request.ids))


def forget_a_request(seen: Evidence) -> None:
    seen.requests.pop()


def refuse_a_request(seen: Evidence) -> None:
    seen.requests[0].refused = "the disk is full"


def halve_a_batch(seen: Evidence) -> None:
    batch = next(request for request in seen.requests if request.count > 1 and request.ids)
    assert batch.ids
    seen.rows.pop(batch.ids[0])
    batch.ids = None


def complete_again(seen: Evidence) -> None:
    seen.steps.append(next(step for step in seen.steps if step.state == "completed"))


def leave_one_running(seen: Evidence) -> None:
    seen.rows[1].state = "processing"


def forget_a_cancel(seen: Evidence) -> None:
    seen.cancels.clear()


def lose_its_traces(seen: Evidence) -> None:
    job = next(row.id for row in seen.rows.values() if row.state == "completed")
    for run in [run for run in seen.starts if run[0] == job]:
        del seen.starts[run]


def lower_a_fence(seen: Evidence) -> None:
    step = next(step for step in seen.steps if step.state == "completed")
    step.fence -= 1


def start_again(seen: Evidence) -> None:
    seen.starts[next(iter(seen.starts))] += 1


def fail_by_itself(seen: Evidence) -> None:
    seen.attempts.append(((1, "run", 1), "failure", "exit code 1"))


def run_twice_at_a_time(seen: Evidence) -> None:
    seen.overlaps.append("1")


def a_tree(seen: Evidence) -> int:
    return next(id for id, children in seen.families.items() if seen.rows[id].state == "completed" and children)


def lose_a_child(seen: Evidence) -> None:
    child = seen.families[a_tree(seen)].pop()
    del seen.rows[child.id]


def add_up_wrongly(seen: Evidence) -> None:
    seen.rows[a_tree(seen)].children_info = '{"leaves": 1000}'


def add_a_child(seen: Evidence) -> None:
    children = seen.families[a_tree(seen)]
    children.append(replace(children[0], id=10**9))


def end_before_a_child(seen: Evidence) -> None:
    tree = a_tree(seen)
    end = next(step for step in seen.steps if step.job == tree and step.state == "completed")
    end.n = 0


TAMPERED = {
    lose_a_row: "lost",
    forget_a_request: "unexpected",
    refuse_a_request: "unexpected",
    halve_a_batch: "unexpected",
    complete_again: "completed twice",
    leave_one_running: "stranded",
    forget_a_cancel: "stranded",
    lose_its_traces: "completed without a run",
    lower_a_fence: "steps and fences",
    start_again: "attempts",
    fail_by_itself: "attempts",
    run_twice_at_a_time: "two runs at a time",
    lose_a_child: "conservation",
    add_up_wrongly: "trees",
    add_a_child: "trees",
    end_before_a_child: "trees",
}


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
def test_evidence_that_is_tampered_with_is_noticed(over: Over, tamper: Callable[[Evidence], None]) -> None:
    engine = open_engine(over[0].db)
    try:
        seen = Evidence(engine, over[0].directory)
        tamper(seen)
        assert verdict(seen)[TAMPERED[tamper]]
    finally:
        engine.close()


def test_every_check_is_tampered_with() -> None:
    assert set(TAMPERED.values()) == set(CHECKS)


def test_who_and_what_is_left_is_seen(over: Over) -> None:
    directory = over[0].directory
    engine = open_engine(over[0].db)
    sleeper = subprocess.Popen(["sleep", "60"], env={DIRECTORY: str(directory), "PATH": os.environ["PATH"]})
    try:
        assert evidence.processes(directory) == [sleeper.pid]
        (directory / "temp" / "forgotten").touch()
        assert evidence.files(engine, directory) == ["temp/forgotten"]
    finally:
        (directory / "temp" / "forgotten").unlink()
        sleeper.kill()
        sleeper.wait()
        engine.close()
    assert evidence.processes(directory) == []


# ── the tool ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wrong", [["--store", "mysql"], ["--minutes", "0"], ["--kills", "x"], ["--what"]])
def test_a_wrong_argument_is_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        tool.main(wrong)
    assert exit.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("torture: ")
    assert said.count("\n") == 1


def test_a_report_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--report", str(tmp_path / "nowhere" / "page.md")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_says_what_was_found(over: Over) -> None:
    found = over[1]
    text = page(found, store="sqlite", seed=1, asked="make torture", database="SQLite")
    assert "0 problems" in text
    assert text.endswith("Verdict: every promise was kept.\n")
    for name in found.checks:
        assert f"| {name} | 0 |" in text
    broken = Findings(found.checks | {"lost": ["job 7 is gone"]}, found.strikes, found.figures, 1.0)
    text = page(broken, store="sqlite", seed=1, asked="make torture", database="SQLite")
    assert "- job 7 is gone" in text
    assert text.endswith("Verdict: 1 problems.\n")


class queue_in:
    """An empty queue in the server, and its end."""

    def __init__(self, server: Server | Given) -> None:
        self._server, self._schema = server, f"kill_{os.getpid()}"

    def __enter__(self) -> str:
        return self._server.url(self._schema)

    def __exit__(self, *_: object) -> None:
        with self._server.admin() as db:
            db.execute(f"drop schema if exists {self._schema} cascade".encode())
