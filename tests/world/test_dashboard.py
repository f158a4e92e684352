"""The dashboard in a real browser. COVEY_PICTURES=DIRECTORY keeps what it looks like, for docs/dashboard.md."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from covey.testing import until
from covey.web.ui.pages import PAGES
from tests.kit import HandPool, child, command
from tests.kit.http_server import Served

from .browser import Visit, open_browser, violations

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PICTURES = os.environ.get("COVEY_PICTURES")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(autouse=True)
def leak_guard(browser: Any) -> Iterator[None]:
    """Instead of the suite's own: the processes of a browser come and go as it likes. Ours is the server."""
    before = {each.ident for each in threading.enumerate()}
    yield
    until(lambda: {each.ident for each in threading.enumerate()} <= before, 10, "the server's threads end")


class Queue:
    """A small queue with something of everything, and its server."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.db, self.options = str(path), options
        self.engine: Engine = open_engine(self.db, create=True)
        self.serve()

    def serve(self) -> None:
        self.served = Served(lambda: open_engine(self.db), socket=True, **self.options)

    def fill(self) -> None:
        pool = HandPool(self.engine, name="vm-1")
        self.engine.enqueue([command(f"send mail {n}", queue="mail") for n in range(20)])
        for claim in pool.claim(8):
            pool.succeed(claim, started_at=self.engine.clock() - 2_000_000)
        self.engine.enqueue([command(f"report {n}", queue="reports", max_attempts=1) for n in range(3)])
        (made,) = self.engine.enqueue([command("build all", queue="builds")])
        for claim in pool.claim(30):
            if claim.queue == "reports":
                pool.fail(claim, f"exit code 3: disk quota of user {claim.id} is exceeded")
            elif claim.id == made.id:
                pool.spawn(claim, *(child(f"build {n}") for n in range(5)))
        self.tree = made.id
        (hostile,) = self.engine.enqueue(
            [command(f"echo {HOSTILE}", key=f"k{HOSTILE}", batch=f"b{HOSTILE}", labels={"l": HOSTILE}, max_attempts=1)]
        )
        claim = next(each for each in pool.claim(50) if each.id == hostile.id)
        pool.fail(claim, HOSTILE, detail=HOSTILE)
        self.hostile = hostile.id

    def paths(self) -> list[str]:
        named = {"ref": str(self.tree), "queue": "mail"}
        return ["/" + each.path.format(**named) if each.path else "" for each in PAGES]

    def close(self) -> None:
        self.served.close()
        self.engine.close()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(tmp_path / "queue.db")
    queue.fill()
    yield queue
    queue.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(tmp_path / "queue.db", needs_token=True)
    queue.fill()
    yield queue
    queue.close()


@pytest.fixture
def visit(browser: Any, queue: Queue) -> Iterator[Visit]:
    visit = Visit(browser, queue.served.url)
    yield visit
    visit.close()


def log_in(visit: Visit, queue: Queue, role: str, *queues: str) -> Any:
    _, token = queue.engine.create_token(role, role, queues=queues or None)
    page = visit.open("/jobs")
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs")
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_says_nothing_to_the_console_and_asks_no_other_host(
    browser: Any, queue: Queue, theme: str
) -> None:
    visit = Visit(browser, queue.served.url, color_scheme=theme)
    extra = [
        "/workers?tab=gantt",
        "/workers?tab=events",
        f"/trees/{queue.tree}?tab=time",
        "/do/cancel?all=yes",
        "/nothing",
    ]
    for path in [*queue.paths(), *extra]:
        page = visit.open(path)
        assert violations(page) == [], path
        if PICTURES:
            name = path.strip("/").replace("/", "-").replace("?", "-").replace("=", "-") or "overview"
            page.screenshot(path=f"{PICTURES}/{name}-{theme}.png")
        page.close()
    visit.close()


def test_at_320_pixels_no_page_is_wider_than_the_window(visit: Visit, queue: Queue) -> None:
    for path in queue.paths():
        page = visit.page()
        page.set_viewport_size({"width": 320, "height": 700})
        page.goto(f"{visit.base}/ui{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        page.close()


def test_without_javascript_pages_open_and_jobs_are_changed(browser: Any, queue: Queue) -> None:
    visit = Visit(browser, queue.served.url, java_script_enabled=False)
    for path in queue.paths():
        assert visit.open(path).locator("h1").count() == 1, path
    (made,) = queue.engine.enqueue([command(queue="plain")])
    page = visit.open(f"/jobs/{made.id}")
    page.get_by_role("button", name="cancel").click()
    page.get_by_role("button", name="cancel 1 job").click()
    assert f"Job {made.id} was pending and is cancelled now." in page.content()
    assert queue.engine.job(made.id).state == "cancelled"
    visit.close()


def test_what_others_have_written_is_shown_and_not_run(visit: Visit, queue: Queue) -> None:
    for path in ("/jobs", "/dead", "/errors", "/metrics", f"/jobs/{queue.hostile}", f"/trees/{queue.hostile}", ""):
        page = visit.open(path)
        page.wait_for_timeout(50)  # for a script to run, should there be one
        page.close()
    assert HOSTILE in visit.open(f"/jobs/{queue.hostile}").inner_text("main")


def test_a_page_lives_and_keys_do_what_buttons_do(visit: Visit, queue: Queue) -> None:
    page = visit.open("/queues")
    page.locator("#live", has_text="live").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/ui/jobs")
    page.locator("#live", has_text="live").wait_for()
    (made,) = queue.engine.enqueue([command("came just now", queue="fresh")])
    page.get_by_text("came just now").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{made.id}")
    page.locator("#live", has_text="live").wait_for()
    page.keyboard.press("c")
    page.get_by_role("dialog").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "no, go back"
    page.keyboard.press("Enter")
    assert queue.engine.job(made.id).state == "pending"
    page.keyboard.press("c")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("is cancelled now").wait_for()
    page.locator("#live", has_text="live").wait_for()
    assert queue.engine.job(made.id).state == "cancelled"
    page.keyboard.press("r")
    page.get_by_text("is pending now").wait_for()


def test_twenty_tabs_of_one_browser_live_on_one_connection(visit: Visit, queue: Queue) -> None:
    tabs = [visit.open("/queues") for _ in range(20)]
    for tab in tabs:
        tab.locator("#live", has_text="live").wait_for()
    assert len(queue.served.app._streams._open) == 1
    for tab in tabs:
        tab.close()


def test_a_page_goes_on_after_a_restart_of_the_server(browser: Any, tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue.db")
    visit = Visit(browser, queue.served.url)
    page = visit.open("/jobs")
    page.locator("#live", has_text="live").wait_for()
    port = queue.served._sockets[0].getsockname()[1]
    queue.served.close()
    page.locator("#live", has_text="away").wait_for()
    queue.engine.enqueue([command("while it was away")])
    queue.options["port"] = port
    queue.serve()
    page.get_by_text("while it was away").wait_for()
    page.locator("#live", has_text="live").wait_for()
    visit.said.clear()  # the browser notes each attempt to connect
    visit.close()
    queue.close()


def test_whoever_loses_his_token_is_told_so_and_sees_nothing_more(browser: Any, guarded: Queue) -> None:
    visit = Visit(browser, guarded.served.url)
    page = log_in(visit, guarded, "read")
    page.locator("#live", has_text="live").wait_for()
    guarded.engine.revoke_token("read")
    guarded.engine.enqueue([command("nobody sees this")])
    page.get_by_text("This session is over").wait_for()
    assert "nobody sees this" not in page.content()
    page.get_by_role("link", name="Log in again").click()
    page.get_by_label("Token").wait_for()
    visit.close()


def test_a_token_for_a_queue_sees_that_one_alone(browser: Any, guarded: Queue) -> None:
    visit = Visit(browser, guarded.served.url)
    page = log_in(visit, guarded, "client", "mail")
    for path in ("", "/jobs", "/queues", "/dead", "/errors", "/metrics", "/system"):
        page.goto(f"{visit.base}/ui{path}")
        assert "reports" not in page.inner_text("body"), path
    assert page.goto(f"{visit.base}/ui/jobs/{guarded.tree}").status == 404
    visit.close()


def test_a_first_page_is_small(visit: Visit) -> None:
    sizes: list[int] = []
    page = visit.page()
    page.on("requestfinished", lambda asked: sizes.append(asked.sizes()["responseBodySize"]))
    page.goto(f"{visit.base}/ui/jobs", wait_until="load")
    until(lambda: len(sizes) >= 5, 10, "its files have come")
    assert sum(sizes) < 150_000
