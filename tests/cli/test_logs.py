"""covey logs and show of Python tasks: their tracebacks, and what they said of themselves."""

from __future__ import annotations

import re

from covey.core.model import Output
from covey.engine.engine import Engine
from tests.kit import HandPool, command, python_task

from .conftest import CommandLine

TRACE = "Traceback (most recent call last):\n  File ...\nValueError: {}\n"


def failing(engine: Engine, pool: HandPool, *errors: str, stderr: bytes = b"", **fields: object) -> int:
    """A Python task that has raised so, one attempt each; the last one was its last."""
    (made,) = engine.enqueue([python_task("t", max_attempts=len(errors), backoff_base=1.0, backoff_cap_s=0.0)])
    for error in errors:
        output = Output(f"out of {error}\n".encode(), stderr)
        (claim,) = pool.claim(1)
        pool.fail(claim, f"ValueError: {error}", detail=TRACE.format(error), output=output, **fields)
    return made.id


def test_logs_print_the_traceback_of_a_failed_task_after_its_output(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    id = str(failing(engine, pool, "one", "two", stderr=b"half a line"))
    last = covey("logs", id)
    assert (last.code, last.out, last.err) == (0, "out of two\n", f"half a line\n{TRACE.format('two')}")
    first = covey("logs", id, "--attempt", "1")
    assert (first.out, first.err) == ("out of one\n", f"half a line\n{TRACE.format('one')}")
    every = covey("logs", id, "--all")
    assert every.out == "out of one\nout of two\n"
    assert every.err.count("Traceback") == 2
    assert covey("logs", "-f", id).err == last.err
    (told,) = covey("logs", id, "--json").json
    assert (told["detail"], told["stderr"]) == (TRACE.format("two"), "half a line")
    assert f"covey logs {id}" in covey("why", id).out


def test_logs_of_a_run_that_wrote_nothing_say_how_it_ended(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    engine.enqueue([python_task("t")])
    pool.report(pool.claim_one(), "abort", error="never again")
    done = covey("logs", "1")
    assert (done.out, done.err) == ("", "covey: attempt 1 wrote nothing; it ended with abort: never again\n")


def test_what_an_earlier_attempt_wrote_is_not_passed_off_as_the_last_one_s(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    engine.enqueue([command(backoff_base=1.0, backoff_cap_s=0.0)])
    pool.fail(pool.claim_one(), output=Output(b"first\n"))
    pool.succeed(pool.claim_one())
    done = covey("logs", "1")
    assert (done.out, done.err) == (
        "first\n",
        "covey: this is from before; the attempt with which job 1 completed wrote nothing\n",
    )


def test_show_prints_what_a_task_said_of_itself_but_not_without_end(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    engine.enqueue([python_task("t")] * 3)
    small, many, odd = pool.claim(3)
    pool.succeed(small, info='{"rows": 3, "where": {"à": [1, null]}}')
    pool.succeed(many, info="{" + ", ".join(f'"n{n}": "{"x" * 1000}"' for n in range(50)) + "}")
    pool.succeed(odd, info='"plain"')
    assert re.search(r'info +rows = 3\n +where = \{"à": \[1, null\]\}\n', covey("show", str(small.id)).out)
    long = covey("show", str(many.id)).out
    assert "… and 30 more; `covey show --json` has all" in long
    assert max(map(len, long.splitlines())) < 400
    assert re.search(r'info +"plain"\n', covey("show", str(odd.id)).out)
    assert len(covey("show", str(many.id), "--json").json["info"]) == 50


def test_show_and_list_say_who_ran_a_job(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    engine.enqueue([command()] * 2)
    old, new = pool.claim(2)
    pool.succeed(old, worker="command-1")
    pool.succeed(new, worker="command-2\tweb-1\tbox")
    assert re.search(r"worker +command-1\n", covey("show", str(old.id)).out)
    assert re.search(r"worker +command-2 of pool web-1 on box\n", covey("show", str(new.id)).out)
    listed = covey("list", "--json").json
    assert [(job["worker"], job["pool_name"], job["host"]) for job in listed] == [
        ("command-2", "web-1", "box"),
        ("command-1", None, None),
    ]
