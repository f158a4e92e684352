"""Interleaved runs, medians and percentiles: the machine wobbles, a ratio of neighbours wobbles less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

__all__ = ["alternate", "median", "percentile", "quotient", "ratio_of_pairs", "spread"]


def alternate(rounds: int, *sides: Callable[[], float]) -> list[list[float]]:
    """A B A B A B: what each side measured, round by round."""
    measured: list[list[float]] = [[] for _ in sides]
    for turn in _orders(rounds, len(sides)):
        for place in turn:
            measured[place].append(sides[place]())
    return measured


def _orders(rounds: int, sides: int) -> Iterator[list[int]]:
    """Every other round backwards, so that no side is always first."""
    for number in range(rounds):
        order = list(range(sides))
        yield order[::-1] if number % 2 else order


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' own ratios: a slow minute of the machine slows both sides of its round."""
    return median(quotient(a, b) for a, b in zip(ours, theirs, strict=True))


def quotient(a: float, b: float) -> float:
    """Who uses nothing at all is infinitely better, not without a ratio; two that use nothing are alike."""
    if b:
        return a / b
    return math.inf if a else 1.0


def spread(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The rounds' own ratios as they came, and how far apart they lie: a median alone says nothing of that."""
    ratios = [quotient(a, b) for a, b in zip(ours, theirs, strict=True)]
    listed = " ".join(f"{each:.2f}" for each in ratios)
    return f"{listed}; least {min(ratios):.2f}, median {median(ratios):.2f}, greatest {max(ratios):.2f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
