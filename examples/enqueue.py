"""Queues a few jobs and shows what becomes of them. Start a worker beside it:

covey --db shop.db worker start --app shop:app
"""

from __future__ import annotations

import sys

from shop import app, fetch, thumbnail, total

from covey import JobFailed, WaitTimeout


def main() -> int:
    with app.transaction():  # all of them, or none
        jobs = [
            thumbnail.enqueue("cat.png", size=64),
            thumbnail.using(priority=9).enqueue("notes.txt"),
            total.enqueue([1.5, 2.25]),
            fetch.enqueue("https://example.org/"),
            app.shell("echo hello from a command", timeout=10),
        ]
    for job in jobs:
        try:
            print(f"job {job.id}: {job.result(timeout=30)!r}")
        except JobFailed as error:
            print(error)
        except WaitTimeout as error:
            print(f"{error}\nno worker runs? covey --db shop.db worker start --app shop:app", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
