"""The query language: each word finds what it says and nothing else, on every store and through a server."""

from __future__ import annotations

import pytest

from covey.core.view import Filter
from covey.engine import views
from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task


@pytest.fixture
def filled(engine: Engine, clock: FakeClock) -> Engine:
    """1 dead, 2 processing, 3 pending in mail with labels, 4 a task, 5 scheduled with a key, later than the others."""
    engine.enqueue([command("one", max_attempts=1, batch="b1")])
    pool = HandPool(engine)
    pool.fail(pool.claim_one(), error='BOOM: 100% "gone"')
    engine.enqueue([command("two words")])
    pool.claim_one()
    engine.enqueue([command("three", queue="mail", labels={"tenant": "t7", "a.b": 'x"y'})])
    clock.advance(7200)
    engine.enqueue([python_task("report.daily"), command("five", key="k5", delay_s=60.0)])
    return engine


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", [5, 4, 3, 2, 1]),
        ("state:dead", [1]),
        ("state:dead,processing", [2, 1]),
        ("state:running", [2]),
        ("state:live queue:default", [5, 4, 2]),
        ("queue:mail,other", [3]),
        ("task:report.daily", [4]),
        ("task:report.*", [4]),
        ("task:REPORT.*", []),
        ("label.tenant:t7", [3]),
        ("label.tenant:t", []),
        ('label.a.b:"x\\"y"', [3]),
        ("key:k5", [5]),
        ("id:2,4", [4, 2]),
        ("batch:b1", [1]),
        ("error:boom", [1]),
        ('error:"100% \\"gone"', [1]),
        ("error:100_", []),
        ("age:>1h", [3, 2, 1]),
        ("age:<1h", [5, 4]),
        ("tries:1", [2, 1]),
        ("tries:<1", [5, 4, 3]),
        ("tries:>1", []),
        ("tree:4", [4]),
        ("worker:1", [2]),
        ("two words", [2]),
        ('"WORDS" state:processing', [2]),
        ("report", [4]),
    ],
)
def test_each_word_finds_what_it_says(filled: Engine, text: str, ids: list[int]) -> None:
    page = filled.jobs(Filter(query=text))
    assert [job.id for job in page.jobs] == ids
    assert (page.next, page.looked_to) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stat:dead", "did you mean 'state'"),
        ("state:daed", "did you mean 'dead'"),
        ("colour:red", "words are state"),
        ("state:dead state:failed", "said twice"),
        ("label.a:b label.c:d", "said twice"),
        ("age:1h", "age:>1h"),
        ("age:>soon", "a duration"),
        ("tries:many", "a whole number"),
        ("tree:x", "a whole number"),
        ('error:"open', "not closed"),
        ("state:", "nothing follows"),
        ("http://x", "in quotes"),
        ("x" * 1001, "at most 1,000"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(engine: Engine, text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        engine.jobs(Filter(query=text))


def test_a_query_and_a_filter_hold_both(filled: Engine) -> None:
    assert [job.id for job in filled.jobs(Filter(query="age:>1h", queue="mail")).jobs] == [3]
    assert filled.jobs(Filter(query="state:dead", states=("pending",))).jobs == []
    with pytest.raises(InvalidInput, match="say it once"):
        filled.jobs(Filter(query="batch:b1", batch="b2"))


def test_a_scan_ends_and_says_how_far_it_looked_and_goes_on_from_there(
    filled: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "SCANNED", 2)
    seen: list[int] = []
    before: int | None = None
    for _ in range(3):
        page = filled.jobs(Filter(query="age:>1h", before=before))
        seen += [job.id for job in page.jobs]
        before = page.next
        assert page.looked_to == page.next
    assert (seen, before) == ([3, 2, 1], None)


def test_pages_of_a_scan_miss_nothing_and_repeat_nothing(filled: Engine) -> None:
    seen, before = [], None
    while True:
        page = filled.jobs(Filter(query="tries:>=0", limit=2, before=before))
        seen += [job.id for job in page.jobs]
        if (before := page.next) is None:
            break
    assert seen == [5, 4, 3, 2, 1]
