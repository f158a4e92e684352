"""Text that is markup already, and functions that make it. Everything else is escaped: a page cannot forget to."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias


class Html(str):
    """Markup. Nobody makes one of what somebody else has written."""

    __slots__ = ()


Content: TypeAlias = "str | int | float | Iterable[Content] | None"
Attribute = str | int | float | bool | None

_VOID = frozenset({"br", "hr", "input", "line", "link", "meta", "path", "polyline"})


def markup(content: Content) -> Html:
    """The content as markup: Html as it is, text escaped, a list one after the other, None as nothing."""
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(escape(content))
    if content is None:
        return Html("")
    if isinstance(content, int | float):
        return Html(content)
    return Html("".join(map(markup, content)))


class Tag:
    """One kind of element: ``td("text", class_="num")``. An attribute that is None or False is left out."""

    __slots__ = ("_is_void", "_name")

    def __init__(self, name: str) -> None:
        self._name, self._is_void = name, name in _VOID

    def __call__(self, *content: Content, **attributes: Attribute) -> Html:
        words = [f"<{self._name}"]
        for name, value in attributes.items():
            if value is None or value is False:
                continue
            name = name.rstrip("_").replace("_", "-")
            words.append(f" {name}" if value is True else f' {name}="{escape(str(value))}"')
        if self._is_void:
            words.append("/>")  # within a picture the slash counts
        else:
            words += [">", *map(markup, content), f"</{self._name}>"]
        return Html("".join(words))


a = Tag("a")
b = Tag("b")
body = Tag("body")
button = Tag("button")
code = Tag("code")
details = Tag("details")
div = Tag("div")
footer = Tag("footer")
form = Tag("form")
g = Tag("g")
h1 = Tag("h1")
h2 = Tag("h2")
head = Tag("head")
header = Tag("header")
html = Tag("html")
kbd = Tag("kbd")
label = Tag("label")
li = Tag("li")
line = Tag("line")
link = Tag("link")
main = Tag("main")
meta = Tag("meta")
nav = Tag("nav")
ol = Tag("ol")
option = Tag("option")
p = Tag("p")
path = Tag("path")
polyline = Tag("polyline")
pre = Tag("pre")
rect = Tag("rect")
script = Tag("script")
section = Tag("section")
select = Tag("select")
small = Tag("small")
span = Tag("span")
strong = Tag("strong")
summary = Tag("summary")
svg = Tag("svg")
table = Tag("table")
tbody = Tag("tbody")
td = Tag("td")
text = Tag("text")
textarea = Tag("textarea")
th = Tag("th")
thead = Tag("thead")
time = Tag("time")
title = Tag("title")
tr = Tag("tr")
ul = Tag("ul")
input_ = Tag("input")
svg_title = Tag("title")
