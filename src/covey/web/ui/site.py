"""The dashboard as HTTP: files, login, pages, what forms ask for, and the stream that says when to look again."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ... import env
from ...core import bodies
from ...core.endpoints import ENDPOINTS, failure_of
from ...core.ports import Backend
from ...errors import CoveyError, Forbidden, NotFound, Unauthorized
from ...log import Log
from ..api import VERBS
from ..api.call import ApiCall
from ..auth import Auth, Identity, refuse
from ..engine_threads import EngineThreads
from ..readers import Readers
from ..request import Disconnected, HttpError, Request, Send, converted
from ..sessions import OWNER, SESSION_S, Sessions
from ..stream import Streams
from . import actions, login, pages
from .assets import Assets
from .page import Page, Shown, bare, inside, whole
from .parts import note
from .visit import Query, Visit, Visitor, address

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; worker-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types covey"
)
SAFETY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
FRAGMENT = "covey-fragment"  # a page asks for its own inside again
SHARED_S = 0.4  # for so long it is the same for everybody who looks at the same
FORM = 1 << 20
THEMES = ("light", "dark")


class Answer(Struct, frozen=True):
    status: int
    body: bytes
    kind: str = "text/html; charset=utf-8"
    headers: dict[str, str] = {}


class Site:
    def __init__(
        self,
        sessions: Sessions,
        gatekeeper: Auth,
        desk: EngineThreads,
        readers: Readers,
        streams: Streams,
        log: Log,
        *,
        prefix: str,
        needs_session: bool,
    ) -> None:
        self._sessions, self._gatekeeper, self._needs_session = sessions, gatekeeper, needs_session
        self._desk, self._readers, self._streams, self._log = desk, readers, streams, log
        self._prefix = prefix
        self._assets = Assets()
        self._mark = os.urandom(12).hex()  # stands for the visitor's own mark in what several are shown
        self._shared: dict[Any, tuple[float, asyncio.Future[Shown]]] = {}

    def owns(self, request: Request, segments: list[str]) -> bool:
        """Whether that is one of its pages, or a browser that has typed the server's address."""
        if segments[:1] == ["ui"]:
            return True
        return segments in ([], [""]) and request.method == "GET" and "text/html" in request.headers.get("accept", "")

    async def serve(self, request: Request, is_page: bool, parts: Sequence[str], send: Send) -> None:
        path = tuple(part for part in parts if part)
        try:
            if not is_page:
                answer = self._elsewhere(address(self._prefix))
            elif path == ("stream",) and request.method == "GET":
                await self._stream(request, send)
                return
            else:
                answer = await self._answer(request, path)
        except Disconnected:
            return
        except CoveyError as error:
            answer = self._failed(request, error)
        except Exception as error:
            self._log.broke(request.method, traceback.format_exc())
            said = f"the server failed ({type(error).__name__}); its log says more"
            answer = self._page(Shown("It failed", note("bad", said), status=500), request)
        try:
            is_whole = await request.finish()
        except Disconnected:
            return
        headers = {"cache-control": "no-store"} | SAFETY | {"content-type": answer.kind} | answer.headers
        headers |= {"content-length": str(len(answer.body))} | ({} if is_whole else {"connection": "close"})
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})

    # ── who looks ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _visitor(self, request: Request) -> Visitor:
        """Unauthorized if that is nobody whom we know."""
        text = request.cookie(self._sessions.cookie)
        session = self._sessions.read(text, env.now()) if text else None
        if session is not None:
            csrf = self._sessions.csrf(session.text)
            if session.token == OWNER:
                return Visitor(guest=Identity("admin"), name="owner", csrf=csrf, has_session=True)
            if guest := await self._gatekeeper.guest_of(session.token):
                name = await self._gatekeeper.name_of(session.token)
                return Visitor(guest=guest, name=name, csrf=csrf, has_session=True)
        if self._needs_session:
            raise Unauthorized("log in first")
        return Visitor(guest=Identity("admin"), name="everybody", csrf=self._sessions.csrf(""))

    # ── what is asked for ───────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, request: Request, path: tuple[str, ...]) -> Answer:
        if request.method not in ("GET", "HEAD", "POST"):
            raise HttpError(405, "method_not_allowed", "pages are read with GET and changed with POST")
        if path[:1] == ("static",):
            return self._asset(request, path)
        if path == ("login",):
            return await self._login(request)
        visitor = await self._visitor(request)
        if path == ("do", "log_out") and request.method == "POST":
            self._check(visitor, await request.form(FORM))
            return self._elsewhere(address(self._prefix, "login"), self._cookie("", 0, request))
        if path[:1] == ("do",) and len(path) == 2:
            return await self._do(request, path, visitor)
        if path == ("stream",):  # asked whether it would be given
            refuse(visitor.guest, ENDPOINTS["stream"])
            return Answer(200, b"", "text/event-stream")
        if request.method == "POST":
            raise HttpError(405, "method_not_allowed", "a page is read with GET")
        if len(path) == 3 and path[0] == "jobs" and path[2] == "output":
            return await self._output(request, path[1], visitor)
        page, names = pages.find(path)
        return await self._show(request, page, names, path, visitor)

    async def _show(
        self, request: Request, page: Page, names: dict[str, str], path: tuple[str, ...], visitor: Visitor
    ) -> Answer:
        refuse(visitor.guest, ENDPOINTS[page.needs])
        query = request.fields()
        is_fragment = FRAGMENT in request.headers
        said = self._said(query)

        def show(engine: Backend, visitor: Visitor = visitor) -> tuple[Visit, Shown]:
            visit = Visit(engine, visitor, prefix=self._prefix, path=path, query=query, names=names)
            return visit, page.show(visit)

        if is_fragment:
            shown = await self._once(visitor, path, query, show)
            body = str(inside(shown, env.now() // 1000)).replace(self._mark, visitor.csrf)
            return Answer(200, body.encode())

        def draw(engine: Backend) -> tuple[int, str]:
            visit, shown = show(engine)
            if said:
                shown = replace(shown, content=[note("good", said, key="said"), shown.content])
            return shown.status, whole(visit, shown, pages.PAGES, self._assets, self._theme(request))

        status, text = await self._readers.ask(draw)
        return Answer(status, text.encode())

    async def _once(self, visitor: Visitor, path: tuple[str, ...], query: Query, show: Any) -> Shown:
        """The page as everybody with the same rights sees it: drawn once, however many look."""
        now = time.monotonic()
        self._shared = {key: value for key, value in self._shared.items() if now - value[0] < SHARED_S}
        key = (visitor.guest.role, visitor.guest.queues, path, tuple(sorted(query.items())))
        if key not in self._shared:
            alike = replace(visitor, csrf=self._mark)
            drawing = asyncio.ensure_future(self._readers.ask(lambda engine: show(engine, alike)[1]))
            self._shared[key] = now, drawing
        shown: Shown = await asyncio.shield(self._shared[key][1])
        return shown

    async def _do(self, request: Request, path: tuple[str, ...], visitor: Visitor) -> Answer:
        """A form: with GET it shows what it would do, with POST it does it."""
        action = actions.find(path[1])
        refuse(visitor.guest, ENDPOINTS[action.needs])
        if request.method != "POST":
            fields = request.fields()
            desk: EngineThreads = self._readers
        else:
            fields = await request.form(FORM)
            self._check(visitor, fields)
            desk = self._desk

        def act(engine: Backend) -> Answer:
            visit = Visit(engine, visitor, prefix=self._prefix, path=path, query=fields, names={})
            if request.method != "POST":
                shown = action.preview(visit)
            else:
                done = action.apply(visit)
                if done.shown is None:
                    mark = self._sessions.sign("said", done.said)
                    return self._elsewhere(visit.url(*done.to, said=done.said, mark=mark))
                shown = done.shown
            if FRAGMENT in request.headers:
                return Answer(shown.status, str(inside(shown, visit.now // 1000)).encode())
            return Answer(shown.status, whole(visit, shown, pages.PAGES, self._assets, self._theme(request)).encode())

        return await desk.ask(act)

    def _said(self, query: Query) -> str | None:
        """What the last form has done, if it was one of ours that says so."""
        said, mark = query.pop("said", ""), query.pop("mark", "")
        return said if said and self._sessions.is_signed("said", said, mark) else None

    def _check(self, visitor: Visitor, fields: Query) -> None:
        if fields.pop("csrf", "") != visitor.csrf:
            raise Forbidden("this form is of another session; load its page anew")

    async def _output(self, request: Request, ref: str, visitor: Visitor) -> Answer:
        """What a running job has written since, for a page that follows it."""
        refuse(visitor.guest, ENDPOINTS["output"])
        given = {name: value for name, value in request.fields().items() if name in ("out", "err", "fence")}
        query = converted(given, bodies.OutputQuery)

        def look(engine: Backend) -> bytes:
            live = VERBS["output"](engine, ApiCall(visitor.guest, {"ref": ref}, query, None, self._nobody))
            return msgspec.json.encode(
                {
                    "fence": live.fence,
                    "out": live.out,
                    "err": live.err,
                    "stdout": live.stdout.decode("utf-8", "replace"),
                    "stderr": live.stderr.decode("utf-8", "replace"),
                }
            )

        return Answer(200, await self._readers.ask(look), "application/json")

    async def _nobody(self) -> Identity:
        raise Unauthorized("log in first")

    async def _stream(self, request: Request, send: Send) -> None:
        """One for each browser. Whoever has lost his session is told so, and the stream ends."""

        async def admit() -> Identity:
            guest = (await self._visitor(request)).guest
            refuse(guest, ENDPOINTS["stream"])
            return guest

        call = ApiCall(await admit(), {}, None, None, admit)
        headers = [(name.encode(), value.encode()) for name, value in ({"cache-control": "no-store"} | SAFETY).items()]
        await self._streams.serve_changes(call, request, send, headers)

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _login(self, request: Request) -> Answer:
        fields = request.fields() if request.method != "POST" else await request.form(FORM)
        target = login.safe(fields.get("next", ""), self._prefix)
        if request.method != "POST":
            if not self._needs_session:
                return self._elsewhere(target)
            return self._page(login.form_of(self._prefix, fields), request)
        now = env.now()
        if once := fields.get("once"):
            if not self._sessions.use(once, now):
                return self._page(login.form_of(self._prefix, {}, login.SPENT), request)
            return self._elsewhere(target, self._cookie(self._sessions.make(OWNER, now), SESSION_S, request))
        try:
            guest = await self._gatekeeper.guest_with(fields.get("token", "").strip())
        except Unauthorized as error:
            return self._page(login.form_of(self._prefix, fields, str(error)), request)
        return self._elsewhere(target, self._cookie(self._sessions.make(guest.token, now), SESSION_S, request))

    def _cookie(self, value: str, lasts_s: int, request: Request) -> str:
        secure = "; Secure" if request.headers.get("x-forwarded-proto", "").lower() == "https" else ""
        path = address(self._prefix)
        return f"{self._sessions.cookie}={value}; Path={path}; Max-Age={lasts_s}; HttpOnly; SameSite=Lax{secure}"

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _asset(self, request: Request, path: tuple[str, ...]) -> Answer:
        found = self._assets.find(path[1]) if len(path) == 2 else None
        if found is None:
            raise NotFound("no such file; load the page anew")
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Answer(200, found.packed, found.kind, headers | {"content-encoding": "gzip"})
        return Answer(200, found.plain, found.kind, headers)

    def _elsewhere(self, place: str, cookie: str | None = None) -> Answer:
        return Answer(303, b"", headers={"location": place} | ({"set-cookie": cookie} if cookie is not None else {}))

    def _theme(self, request: Request) -> str:
        theme = request.cookie("covey_theme") or ""
        return theme if theme in THEMES else ""

    def _page(self, shown: Shown, request: Request) -> Answer:
        return Answer(shown.status, bare(self._prefix, shown, self._assets, self._theme(request)).encode())

    def _failed(self, request: Request, error: CoveyError) -> Answer:
        status, failed = (error.status, None) if isinstance(error, HttpError) else failure_of(error)
        wants_page = "text/html" in request.headers.get("accept", "") and FRAGMENT not in request.headers
        if isinstance(error, Unauthorized) and wants_page and request.method == "GET":
            return self._elsewhere(address(self._prefix, "login", next=request.target))
        if failed is not None and not wants_page:
            return Answer(status, msgspec.json.encode(failed), "application/json")
        return self._page(login.problem(self._prefix, status, str(error)), request)
