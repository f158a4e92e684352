"""The Python tasks of `covey demo`: one that works, one that needs a second try, one that never succeeds."""

from __future__ import annotations

import time

from covey import Context, Covey

app = Covey()


@app.task
def count_primes(limit: int) -> int:
    """How many primes there are below ``limit``."""
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    print(f"{sum(sieve):,} primes below {limit:,}")
    return sum(sieve)


@app.task(max_attempts=3, backoff_base=1.0)
def flaky(ctx: Context) -> str:
    """Fails at first, so that there is something to retry."""
    if ctx.attempt == 1:
        raise ConnectionError("the other side hung up (it will work the second time)")
    return "worked the second time"


@app.task(max_attempts=2, backoff_base=1.0)
def hopeless() -> None:
    """Fails every time, so that there is a dead letter."""
    print("trying what cannot work")
    raise ValueError("this task never succeeds: it is here to show a dead letter")


@app.task
async def nap(seconds: float) -> float:
    """An async task: many of them sleep in one worker."""
    import asyncio

    started = time.monotonic()
    await asyncio.sleep(seconds)
    return round(time.monotonic() - started, 1)
