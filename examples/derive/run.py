"""Two rounds of the pipeline, the second asked for while the first one runs. In this directory:

covey --db derive.db worker start --count 4 --app pipeline:app     in another terminal
python run.py
"""

from __future__ import annotations

import json
import random
import sys

from pipeline import app, detect, home, setup

from covey import Job, WaitTimeout


def main() -> int:
    setup()
    change(20)
    first = detect.enqueue()
    print(f"round 1 is job {first.id}; in another terminal: covey --db derive.db list")
    if not wait(first):
        return 1
    change(8)
    second = detect.enqueue()
    print(f"round 2 is job {second.id}; it waits until round 1 is published")
    while any(view.counts.get(state) for view in app.client.queues() for state in ("pending", "blocked", "waiting")):
        app.client.wait_for([second.id], 0.2)
    print((home / "published.json").read_text())
    return 0


def change(count: int) -> None:
    for number in random.Random(count).sample(range(40), count):
        (home / "sources" / f"item-{number:02}.json").write_text(json.dumps({"amount": random.randrange(100)}))


def wait(job: Job[list[str]]) -> bool:
    try:
        print(f"changed: {len(job.result(timeout=30))} sources")
    except WaitTimeout as error:
        print(
            f"{error}\nno worker runs? covey --db derive.db worker start --count 4 --app pipeline:app", file=sys.stderr
        )
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
