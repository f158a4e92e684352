"""The tool that plants mutants: what it finds in a file, what it leaves alone, and that what it plants is there."""

from __future__ import annotations

import ast
import re

import pytest

from covey.core import retry
from tests.mutation import processes
from tests.mutation.operators import mutants, mutated
from tests.mutation.planting import loaded_functions, plant, read

SOURCE = '''
"""A docstring."""
Alias = list[int]
LIMIT = 3

class Thing(Struct, frozen=True):
    size: int = 1

    def __repr__(self) -> str:
        return "Thing"

@cache
def f(a, b=2):
    """Another."""
    failpoint("f.begins")
    if a < b and not a:
        raise ValueError("a text for people")
    for x in a:
        g(x, key="word")
    return a + 1
'''


def test_it_finds_what_a_slip_may_change_and_leaves_the_rest_alone() -> None:
    long = "decorator"  # shows the whole function
    found = {
        (each.operator, *(text[:20] if each.operator == long else text for text in (each.before, each.after)))
        for each in mutants("x.py", SOURCE)
    }
    assert found == {
        ("assignment", "LIMIT = 3", "LIMIT = None"),
        ("constant", "3", "4"),
        ("assignment", "size: int = 1", "size: int = None"),
        ("constant", "1", "2"),
        ("decorator", "@cache def f(a, b=2)", 'def f(a, b=2): """An'),
        ("constant", "2", "3"),
        ("boolean", "a < b and (not a)", "a < b or not a"),
        ("condition", "a < b and (not a)", "not (a < b and (not a))"),
        ("comparison", "a < b", "a <= b"),
        ("not", "not a", "a"),
        ("loop", "for x in a: g(x, key='word')", "for x in []: g(x, key='word')"),
        ("statement", "g(x, key='word')", "pass"),
        ("keyword key", "g(x, key='word')", "g(x)"),
        ("constant", "'word'", "'XXwordXX'"),
        ("return", "return a + 1", "return None"),
        ("arithmetic", "a + 1", "a - 1"),
    }


def test_every_mutant_is_another_program_and_only_in_one_place() -> None:
    whole = ast.dump(ast.parse(SOURCE))
    programs = [ast.dump(mutated(SOURCE, each.number)) for each in mutants("x.py", SOURCE)]
    assert whole not in programs
    assert len(set(programs)) == len(programs)


def test_what_is_planted_is_there_and_can_be_taken_out_again() -> None:
    mutant = next(each for each in mutants("core/retry.py", read("core/retry.py")) if each.after == "return None")
    before = retry.backoff_s.__code__
    try:
        plant(mutant, loaded_functions())
        assert retry.backoff_s(1, base=2.0, cap_s=9.0, jitter=False, rng=None) is None  # type: ignore[arg-type]
    finally:
        retry.backoff_s.__code__ = before
    assert retry.backoff_s(1, base=2.0, cap_s=9.0, jitter=False, rng=None) == 2.0  # type: ignore[arg-type]


@pytest.mark.parametrize("bug", processes.BUGS, ids=[bug.name for bug in processes.BUGS])
def test_what_is_planted_in_processes_has_its_place_and_a_test_that_is_to_find_it(bug: processes.Planted) -> None:
    """`make mutants-processes` takes long: that a rename has made it blind is seen here."""
    assert (processes.ROOT / "src" / "covey" / bug.file).read_text().count(bug.good) == 1
    names = re.findall(r"def (test_\w+)", (processes.ROOT / "tests" / bug.test).read_text())
    assert [name for name in names if bug.only in name]
