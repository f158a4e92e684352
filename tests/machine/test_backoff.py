"""When a failed job is tried again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as some

from covey.core.retry import backoff_s

attempts = some.integers(1, 100_000)
bases = some.floats(1, 100)
caps = some.floats(0, 1e9)


def delay(attempt: int, base: float = 2.0, cap_s: float = 300.0) -> float:
    return backoff_s(attempt, base=base, cap_s=cap_s, jitter=False, rng=Random(0))


@given(attempts, bases, caps)
def test_a_delay_is_never_negative_never_above_its_cap_and_never_overflows(n: int, base: float, cap: float) -> None:
    assert 0 <= delay(n, base, cap) <= cap


@given(some.integers(1, 300), bases, caps)
def test_below_the_cap_a_delay_is_the_power(n: int, base: float, cap: float) -> None:
    exact = min(base**n, cap) if n * math.log10(base) < 300 else cap
    assert math.isclose(delay(n, base, cap), exact, rel_tol=1e-9, abs_tol=1e-9)


@given(some.integers(1, 99_999), bases, caps)
def test_delays_never_fall(n: int, base: float, cap: float) -> None:
    assert delay(n, base, cap) <= delay(n + 1, base, cap) * (1 + 1e-9)


def test_the_first_delay_is_the_base_itself() -> None:
    assert [delay(n) for n in range(1, 11)] == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert [delay(n, base=1.0) for n in (1, 2, 50)] == [1, 1, 1]
    assert delay(5, cap_s=0.0) == 0


@given(some.integers(1, 1000), some.integers(0, 2**32))
def test_jitter_stays_within_the_delay_and_above_zero(n: int, seed: int) -> None:
    spread = backoff_s(n, base=2.0, cap_s=300.0, jitter=True, rng=Random(seed))
    assert 0 < spread <= delay(n)


def test_jitter_spreads_a_storm_so_that_no_second_holds_more_than_a_twentieth(
    proof: Callable[[int, int], int],
) -> None:
    dice, count = Random(15), proof(10_000, 100_000)
    delays = (backoff_s(5, base=2.0, cap_s=300.0, jitter=True, rng=dice) for _ in range(count))
    buckets = Counter(int(each) for each in delays)
    assert max(buckets.values()) <= count * 0.05
