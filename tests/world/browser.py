"""A real browser: Debian's chromium, driven by Playwright, which brings none of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.kit import lacking

FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Answers that a test asks for are no fault: a browser notes each of them.
EXPECTED = ("Failed to load resource",)


@contextmanager
def open_browser() -> Iterator[Any]:
    lacking.need("chromium")
    from playwright.sync_api import sync_playwright

    # What it keeps while it runs is nothing that a test has left.
    with TemporaryDirectory(dir="/var/tmp") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", place)
        playwright = sync_playwright().start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        patch.undo()
        yield browser
        browser.close()
        playwright.stop()


class Visit:
    """A window of its own in the browser; what pages say to the console and ask of other hosts is kept."""

    def __init__(self, browser: Any, base: str, **options: Any) -> None:
        self.base, self.said, self.strangers = base, list[str](), list[str]()
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)

    def page(self) -> Any:
        page = self.context.new_page()
        page.on("console", lambda each: self.said.append(each.text) if not each.text.startswith(EXPECTED) else None)
        page.on("pageerror", lambda error: self.said.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (self.said.append(f"a script ran: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: None if asked.url.startswith(self.base) else self.strangers.append(asked.url))
        page.set_default_timeout(30_000)
        return page

    def open(self, path: str = "") -> Any:
        page = self.page()
        page.goto(f"{self.base}/ui{path}")
        return page

    def close(self) -> None:
        self.context.close()
        assert not self.said, self.said
        assert not self.strangers, self.strangers


def violations(page: Any) -> list[str]:
    """What axe finds, by rule and place."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"][:3]]
