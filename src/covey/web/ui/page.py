"""What a page is, and the frame around each: navigation, who looks, whether it is live."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ... import __version__
from .assets import Assets
from .html import (
    Content,
    Html,
    a,
    b,
    body,
    button,
    div,
    footer,
    h1,
    head,
    header,
    html,
    li,
    link,
    main,
    markup,
    meta,
    nav,
    path,
    script,
    small,
    span,
    svg,
    title,
    ul,
)
from .parts import act
from .visit import Visit, address


class Shown(Struct, frozen=True):
    """What a page has to say. ``aside``: what can be done about the whole of it."""

    title: str
    content: Content
    head: Content = None  # instead of the title, where it is more than words
    aside: Content = None
    status: int = 200
    is_live: bool = True


class Page(Struct, frozen=True, kw_only=True):
    path: str  # below /ui; {ref} names a part
    show: Callable[[Visit], Shown]
    needs: str  # the endpoint without which there is nothing to see here
    name: str | None = None  # in the navigation
    key: str | None = None  # g and this letter lead here


def inside(shown: Shown, now: int) -> Html:
    """What changes while a page lives."""
    top = div(
        shown.head or h1(shown.title),
        div(shown.aside, class_="aside"),
        class_="page-head",
        data_key="head",
        data_now=now,
    )
    return markup([top, shown.content])


def whole(visit: Visit, shown: Shown, pages: Sequence[Page], assets: Assets, theme: str) -> str:
    return _document(
        f"{shown.title} · Covey",
        [
            a("Skip to the page", href="#page", class_="skip"),
            _top(visit),
            _navigation(visit, pages),
            main(
                inside(shown, visit.now // 1000), id="page", tabindex="-1", data_live="yes" if shown.is_live else None
            ),
            footer(
                small(f"Covey {__version__} · ", a("HTTP interface", href=f"{visit.prefix}/docs"), " · press "),
                button("?", type="button", class_="plain", data_hotkey="?", aria_label="keys"),
                small(" for keys"),
            ),
        ],
        visit.prefix,
        assets,
        theme,
        live=address(visit.prefix, "stream"),
    )


def bare(prefix: str, shown: Shown, assets: Assets, theme: str) -> str:
    """A page for somebody who is not in yet: nothing on it but what it says."""
    mark = div(_bird(), b("Covey"), class_="brand")
    return _document(
        f"{shown.title} · Covey",
        main(div(mark, h1(shown.title), shown.content, class_="card"), id="page", class_="bare"),
        prefix,
        assets,
        theme,
    )


def _document(name: str, content: Content, prefix: str, assets: Assets, theme: str, live: str | None = None) -> str:
    def asset(file: str) -> str:
        return address(prefix, "static", assets.name(file))

    top = head(
        meta(charset="utf-8"),
        meta(name="viewport", content="width=device-width, initial-scale=1"),
        meta(name="color-scheme", content="light dark"),
        title(name),
        link(rel="icon", href=asset("icon.svg"), type="image/svg+xml"),
        link(rel="stylesheet", href=asset("style.css")),
        script(type="module", src=asset("main.js")),
        [link(rel="modulepreload", href=asset(file)) for file in assets.modules],
    )
    whole = html(
        top,
        body(content, data_stream=live, data_worker=asset("stream.js"), data_home=address(prefix)),
        lang="en",
        data_theme=theme or None,
    )
    return f"<!doctype html>{whole}"


def _bird() -> Html:
    wings = ("M3 9c3-1 5 0 7 4 2-4 4-5 7-4", "M8 4c2-.6 3.400 0 4.600 2.600C13.800 4 15.200 3.400 17 4")
    return svg(
        [
            path(d=each, fill="none", stroke="currentColor", stroke_width="1.8", stroke_linecap="round")
            for each in wings
        ],
        viewBox="0 0 20 16",
        class_="bird",
        aria_hidden="true",
    )


def _top(visit: Visit) -> Html:
    place = visit.engine.place.url.rpartition("/")[2] if visit.guest.queues is None else None
    who = span(visit.visitor.name, class_="who", title=f"role {visit.guest.role}")
    leave = act(visit, "log_out", "log out", tone="plain") if visit.visitor.has_session else None
    return header(
        a(_bird(), b("Covey"), href=visit.url(), class_="brand"),
        span(place, class_="place", title="the queue") if place else None,
        span(class_="spring"),
        span("", id="live", class_="live", role="status"),
        button("theme", type="button", class_="plain", id="theme", data_hotkey="t"),
        who,
        leave,
    )


def _navigation(visit: Visit, pages: Sequence[Page]) -> Html:
    here = visit.path[0] if visit.path else ""
    here = {"do": "jobs"}.get(here, here)
    items = [
        li(
            a(
                page.name,
                href=visit.url(*filter(None, (page.path,))),
                aria_current="page" if page.path == here else None,
                data_go=page.key,
            )
        )
        for page in pages
        if page.name and visit.may(page.needs)
    ]
    return nav(ul(items), aria_label="pages")
