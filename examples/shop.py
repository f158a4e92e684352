"""Tasks in a module of their own, so that workers can import them: ``covey worker start --app shop:app``."""

from __future__ import annotations

import asyncio

from covey import Abort, Context, Covey, Retry

app = Covey("shop.db")


@app.task(queue="images", max_attempts=5, timeout=60)
def thumbnail(path: str, size: int = 256) -> str:
    if not path.endswith(".png"):
        raise Abort(f"{path} is not a picture")  # another try would end the same way
    return f"{path.removesuffix('.png')}-{size}.png"


@app.task
def total(ctx: Context, prices: list[float]) -> float:
    if not prices and ctx.attempt < ctx.max_attempts:
        raise Retry("no prices yet", after=1)
    ctx.info(items=len(prices))
    return sum(prices)


@app.task(queue="net")
async def fetch(url: str) -> int:
    await asyncio.sleep(0.01)
    return len(url)
