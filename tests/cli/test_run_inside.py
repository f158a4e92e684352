"""`covey run` inside a job: it never waits for a place that its own job, or one like it, holds."""

from __future__ import annotations

import itertools
import sys

import pytest

from .conftest import CommandLine, until

RUN = f"{sys.executable} -m covey run --db queue.db"  # in the directory of the test, as its jobs are


def test_on_a_full_pool_it_is_worked_in_place(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", "--max-attempts", "1", f"{RUN} 'echo inner; echo it runs >ran'")
    assert covey("wait", "1", "--timeout", "50s").code == 0
    assert covey("logs", "1").out == "inner\n"
    assert (covey.state(2), (covey.directory / "ran").read_text()) == ("completed", "it runs\n")
    until(lambda: len(covey.pids()) == 1)


def test_it_needs_no_place_of_the_pool_that_is_full_of_jobs_like_it_and_more_of_them_wait(covey: CommandLine) -> None:
    """A pool of its own that took the next of them first would need another one, and that one another."""
    covey("enqueue", "-", stdin=f"echo 1 >>log; {RUN} true; echo -1 >>log\n".encode() * 6)
    covey.pool("--count", "2")
    assert covey("wait", *map(str, range(1, 7)), "--timeout", "55s").code == 0
    assert {covey.state(id) for id in range(1, 13)} == {"completed"}
    begun = itertools.accumulate(map(int, (covey.directory / "log").read_text().split()))
    assert max(begun) <= 2, "no more of them at a time than the pool has places"


def test_a_free_place_elsewhere_is_used(covey: CommandLine) -> None:
    covey.pool("--count", "4")
    covey("enqueue", f"{RUN} true")
    assert covey("wait", "1", "--timeout", "50s").code == 0
    assert covey.state(2) == "completed"


def test_what_the_inner_job_spawns_runs_too(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    spawn = f"{sys.executable} -m covey spawn touch below"
    covey("enqueue", f'{RUN} "{spawn}"')
    assert covey("wait", "1", "--timeout", "50s").code == 0
    assert (covey.directory / "below").exists()


@pytest.mark.parametrize(
    ("rule", "said"), [(["--serial"], "runs one tree at a time"), (["--concurrency", "1"], "runs at most 1 at a time")]
)
def test_in_a_queue_whose_only_place_its_job_holds_it_is_refused(
    covey: CommandLine, rule: list[str], said: str
) -> None:
    covey("queue", "set", "tight", *rule)
    covey.pool("--count", "2")
    covey("enqueue", "--queue", "tight", "--max-attempts", "1", f"{RUN} --queue tight true")
    covey("enqueue", "--queue", "wide", "--max-attempts", "1", f"{RUN} --queue tight true")
    assert covey("wait", "1", "--timeout", "50s").code == 125
    assert covey("logs", "1").err == (
        f"error: the queue 'tight' {said}, and job 1, which this is part of, would wait for itself; "
        "use `covey spawn`, or another --queue\n"
    )
    assert covey("wait", "2", "--timeout", "50s").code == 0  # from another queue there is a place, sooner or later


def test_a_place_that_is_held_further_out_is_refused_too(covey: CommandLine) -> None:
    """The job between them is of another queue, and waits for this one as its own job waits for it."""
    covey("queue", "set", "tight", "--serial")
    covey.pool("--count", "4")
    (covey.directory / "inner").write_text(f"{RUN} --queue tight touch ran\n")
    covey("enqueue", "--queue", "tight", "--max-attempts", "1", f"{RUN} --queue wide --max-attempts 1 sh inner")
    assert covey("wait", "1", "--timeout", "50s").code == 125
    assert "the queue 'tight' runs one tree at a time, and job 1, which this is part of" in covey("logs", "2").err
    assert not (covey.directory / "ran").exists()


def test_a_job_that_is_cancelled_takes_what_it_runs_with_it(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", f"{RUN} 'touch began; exec sleep 1000'")
    until((covey.directory / "began").exists)
    covey("cancel", "1")
    until(lambda: (covey.state(1), covey.state(2)) == ("cancelled", "cancelled"), 40)
    until(lambda: len(covey.pids()) == 1)


def test_nobody_else_counts_on_a_pool_that_is_there_for_one_tree(covey: CommandLine) -> None:
    """Else this run would wait for it."""
    (job,) = covey("enqueue", "until test -e go; do sleep 0.05; done").ids
    covey.pool("--tree", str(job), "--count", "3")
    assert covey("run", "echo own").out == "own\n"
    assert "no worker serves" in covey("why", *covey("enqueue", "true").out.split()).out
    (covey.directory / "go").touch()
    until(lambda: covey.state(job) == "completed")
    assert covey.state(3) == "pending"
