"""The dashboard as its visitors' browsers ask for it: what is shown to whom, and what a form may do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from covey import env
from covey.core.specs import shell_spec
from covey.web.sessions import Sessions
from covey.web.ui.pages import PAGES
from tests.kit.factories import command

from .house import House, Said, open_house

HTML = ("accept", "text/html")
FORM = ("content-type", "application/x-www-form-urlencoded")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def page(house: House, path: str = "", *, cookie: str | None = None) -> Said:
    return house.ask("GET", f"/ui{path}", headers=[HTML, *([("cookie", cookie)] if cookie else [])])


def csrf(said: Said) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', said.body.decode())
    assert found, said.body[:500]
    return found[1]


def send(house: House, path: str, cookie: str | None = None, **fields: object) -> Said:
    headers = [HTML, FORM, *([("cookie", cookie)] if cookie else [])]
    return house.ask("POST", f"/ui{path}", urlencode(fields).encode(), headers=headers)


def log_in(house: House, token: str) -> str:
    """The cookie of whoever has shown that token."""
    said = send(house, "/login", token=token)
    assert said.status == 303, said
    return said.headers["set-cookie"].partition(";")[0]


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[House]:
    """A queue in which every field that somebody else writes is an attack."""
    with open_house(tmp_path / "queue.db") as house:
        key, batch = f"k{HOSTILE}", f"b{HOSTILE}"
        (made,) = house.engine.enqueue(
            [command(f"echo {HOSTILE}", key=key, batch=batch, labels={"who": HOSTILE}, queue="own")]
        )
        house.jobs["hostile"] = made.id, 0, 0
        yield house


def paths(house: House) -> list[str]:
    named = {"ref": str(house.jobs["own"][0]), "queue": "own"}
    return ["/" + each.path.format(**named) if each.path else "" for each in PAGES]


def test_every_page_opens_and_none_has_a_script_or_a_style_of_its_own(house: House) -> None:
    for path in [
        *paths(house),
        "/workers?tab=start",
        "/workers?tab=gantt",
        "/workers?tab=events",
        "/do/cancel?all=yes&state=pending",
    ]:
        said = page(house, path)
        text = said.body.decode()
        assert said.status == 200, (path, text)
        assert "<title>" in text
        assert not re.search(r"<script(?! type=\"module\" src=)|\sstyle=|\son[a-z]+=|javascript:", text), path
        assert "default-src 'none'" in said.headers["content-security-policy"]
        assert "require-trusted-types-for 'script'" in said.headers["content-security-policy"]


def test_what_somebody_else_wrote_is_shown_as_text(hostile: House) -> None:
    id = hostile.jobs["hostile"][0]
    for path in ("/jobs", f"/jobs/{id}", f"/trees/{id}", f"/do/cancel?ref={id}", "/queues/" + "%3Cscript%3Ex"):
        text = page(hostile, path).body.decode()
        assert "<script>alert" not in text, path
        assert "<img" not in text, path
    assert "&lt;script&gt;alert(1)" in page(hostile, f"/jobs/{id}").body.decode()


def test_the_address_of_the_server_leads_a_browser_there_and_no_program(house: House) -> None:
    said = house.ask("GET", "/", headers=[HTML])
    assert (said.status, said.headers["location"]) == (303, "/ui")
    assert house.ask("GET", "/").status == 404


def test_without_a_session_nothing_is_shown_where_a_token_is_needed(guarded: House) -> None:
    for path in paths(guarded):
        said = page(guarded, path)
        assert said.status == 303, path
        assert said.headers["location"].startswith("/ui/login?next=%2Fui"), path
    assert guarded.ask("GET", "/ui/stream").status == 401
    assert guarded.ask("GET", "/ui/jobs/1/output").status == 401
    assert guarded.ask("GET", "/ui", headers=[("covey-fragment", "1"), HTML]).status == 401
    assert send(guarded, "/do/pause", queue="own", csrf="x").status == 401


def test_a_session_is_its_tokens_and_ends_with_it(guarded: House) -> None:
    token = guarded.token("read")
    cookie = log_in(guarded, token)
    assert page(guarded, "/jobs", cookie=cookie).status == 200
    assert b"covey_" not in page(guarded, "/system", cookie=cookie).body
    guarded.engine.revoke_token("t1")
    from covey.testing.until import until

    until(lambda: page(guarded, "/jobs", cookie=cookie).status == 303, 5, "the session ends with its token")


def test_a_cookie_that_was_changed_lets_nobody_in(guarded: House) -> None:
    cookie = log_in(guarded, guarded.token("read"))
    name, _, value = cookie.partition("=")
    token, expires, nonce, mac = value.split(".")
    for forged in (f"0.{expires}.{nonce}.{mac}", f"{token}.{int(expires) + 1}.{nonce}.{mac}", "0.9999999999.00.x", ""):
        assert page(guarded, cookie=f"{name}={forged}").status == 303, forged
    assert page(guarded, cookie=f"{cookie}; {cookie}").status == 303  # which of the two is meant?


def test_the_interface_for_programs_takes_no_cookie(guarded: House) -> None:
    cookie = log_in(guarded, guarded.token("admin"))
    assert guarded.ask("GET", "/v1/jobs", headers=[("cookie", cookie)]).status == 401


def test_a_link_lets_in_once_and_only_by_its_button() -> None:
    sessions, now = Sessions(b"k" * 32, "a queue"), env.now()
    link = sessions.once(now)
    assert not Sessions(b"k" * 32, "another").use(link, now)
    assert not sessions.use(link, now + 61_000_000)
    assert sessions.use(link, now)
    assert not sessions.use(link, now)
    session = sessions.make(0, now)
    assert sessions.read(session, now) is not None
    assert sessions.read(session, now + 13 * 3600 * 1_000_000) is None
    assert Sessions(b"j" * 32, "a queue").read(session, now) is None


def test_the_page_of_the_link_does_not_use_it_up(tmp_path: Path) -> None:
    sessions = Sessions(b"k" * 32, "q")
    with open_house(tmp_path / "queue.db", needs_token=True, sessions=sessions) as house:
        link = sessions.once(env.now())
        for _ in range(2):  # a program that follows links to see what is there
            assert b"Open the dashboard" in page(house, f"/login?once={link}").body
        said = send(house, "/login", once=link)
        assert said.status == 303
        cookie = said.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Path=/ui" in cookie
        assert page(house, cookie=cookie.partition(";")[0]).status == 200
        assert send(house, "/login", once=link).status == 401


def test_login_leads_to_no_other_site(guarded: House) -> None:
    token = guarded.token("read")
    for target in ("https://example.org/", "//example.org", "/\\example.org", "/ui/../..//example.org\\", "/uix"):
        said = send(guarded, "/login", token=token, next=target)
        assert re.fullmatch(r"/ui(/\.\./\.\.//example\.org)?", said.headers["location"]), target
    assert send(guarded, "/login", token=token, next="/ui/jobs?state=dead").headers["location"] == "/ui/jobs?state=dead"


def test_a_form_without_its_mark_changes_nothing(house: House) -> None:
    for mark in ("", "x", Sessions(b"k" * 32, "q").csrf("")):
        assert send(house, "/do/pause", queue="own", csrf=mark).status == 403
    assert not any(queue.paused for queue in house.engine.queues())
    mark = csrf(page(house))
    assert send(house, "/do/pause", queue="own", csrf=mark).status == 303
    assert [queue.name for queue in house.engine.queues() if queue.paused] == ["own"]
    foreign = house.ask(
        "POST",
        "/ui/do/resume",
        urlencode({"queue": "own", "csrf": mark}).encode(),
        headers=[FORM, ("origin", "https://example.org")],
    )
    assert foreign.status == 403


def test_what_is_asked_first_does_nothing_until_it_is_answered(house: House) -> None:
    waiting = house.waiting["own"]
    shown = page(house, f"/do/cancel?ref={waiting}")
    assert b"Cancel 1 job?" in shown.body
    assert house.engine.job(waiting).state == "pending"
    said = send(house, "/do/cancel", ref=waiting, csrf=csrf(shown))
    assert said.status == 303
    assert house.engine.job(waiting).state == "cancelled"
    assert f"Job {waiting} was pending and is cancelled now." in page(house, said.headers["location"][3:]).body.decode()


def test_nobody_can_make_a_page_say_what_has_not_happened(house: House) -> None:
    assert b"all is lost" not in page(house, "/jobs?said=all+is+lost&mark=x").body


def test_all_that_match_are_counted_first_and_then_changed(house: House) -> None:
    made = house.engine.enqueue([command(queue="own") for _ in range(620)])
    shown = page(house, "/do/cancel?all=yes&state=pending&queue=own")
    assert b"Cancel 621 jobs?" in shown.body
    result = send(house, "/do/cancel", all="yes", state="pending", queue="own", csrf=csrf(shown))
    assert b"621 jobs cancelled" in result.body
    assert {house.engine.job(each.id).state for each in made} == {"cancelled"}
    assert house.engine.job(house.waiting["other"]).state == "pending"


def test_a_job_is_run_again_changed_and_its_variables_stay_covered(house: House) -> None:
    spec = shell_spec("true", env={"SECRET": "hunter2"}, queue="own")
    (made,) = house.engine.enqueue([spec])
    shown = page(house, f"/jobs/{made.id}")
    assert b"hunter2" not in shown.body
    fields = '{"command": "echo changed", "env": {"SECRET": "•••", "MORE": "1"}, "queue": "own"}'
    said = send(house, "/do/enqueue", object=fields, like=made.id, csrf=csrf(shown))
    assert said.status == 303, said.body
    new = house.engine.job(re.match(r"/ui/jobs/(\d+)", said.headers["location"])[1])  # type: ignore[index]
    assert (new.command, new.args["env"]) == ("echo changed", {"SECRET": "hunter2", "MORE": "1"})


def test_a_token_for_some_queues_sees_only_theirs(guarded: House) -> None:
    guarded.engine.enqueue([command(f"other secret {n}", queue="other") for n in range(5)])
    cookie = log_in(guarded, guarded.token("client", "own"))
    for path in ("", "/jobs", "/queues", "/errors", "/dead", "/trees", "/system", f"/jobs/{guarded.jobs['own'][0]}"):
        said = page(guarded, path, cookie=cookie)
        assert said.status == 200, (path, said.body)
        assert b"other" not in re.sub(rb"[Aa]nother|the other", b"", said.body), path
    for path in (f"/jobs/{guarded.jobs['other'][0]}", "/queues/other"):
        assert page(guarded, path, cookie=cookie).status == 404, path
    assert page(guarded, "/jobs?queue=other", cookie=cookie).status == 403
    assert page(guarded, "/workers", cookie=cookie).status == 403
    counted = re.search(r"all <small[^>]*>(\d+)", page(guarded, "/jobs", cookie=cookie).body.decode())
    assert counted
    assert counted[1] == "3"
    mark = csrf(page(guarded, f"/jobs/{guarded.jobs['own'][0]}", cookie=cookie))
    other = guarded.waiting["other"]
    assert send(guarded, "/do/cancel", cookie, ref=other, csrf=mark).status == 404
    assert send(guarded, "/do/pause", cookie, queue="own", csrf=mark).status == 403
    assert guarded.engine.job(other).state == "pending"


def test_whoever_only_reads_is_offered_nothing_and_may_do_nothing(guarded: House) -> None:
    guarded.token("read")
    cookie = log_in(guarded, guarded.token("read"))
    for path in paths(guarded):
        assert page(guarded, path, cookie=cookie).body.count(b'method="post"') == 1, path  # to log out


def test_a_fragment_is_the_inside_of_its_page_with_the_marks_of_who_asks(house: House) -> None:
    whole = page(house)
    part = house.ask("GET", "/ui", headers=[HTML, ("covey-fragment", "1")])
    assert part.status == 200
    assert b"<html" not in part.body
    assert csrf(part) == csrf(whole)


def test_files_have_a_name_for_what_is_in_them_and_are_kept_for_ever(house: House) -> None:
    names = re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', page(house).body.decode())
    assert len(names) > 5
    for name in names:
        said = house.ask("GET", name)
        assert said.status == 200
        assert "immutable" in said.headers["cache-control"]
        for other in re.findall(r'from "\./([^"]+)"', said.body.decode()):
            assert house.ask("GET", f"/ui/static/{other}").status == 200
    assert house.ask("GET", "/ui/static/style.css").status == 404


def test_behind_a_prefix_every_link_has_it(tmp_path: Path) -> None:
    with open_house(tmp_path / "queue.db", prefix="/covey") as house:
        for where in ("/covey/ui/jobs", "/ui/jobs"):  # a proxy may leave the prefix there, or take it away
            text = house.ask("GET", where, headers=[HTML]).body.decode()
            links = re.findall(r'(?:href|src|action|data-[a-z]+)="(/[^"]*)"', text)
            assert links
            assert [link for link in links if not link.startswith("/covey/")] == []
        assert house.ask("GET", "/covey/v1/queues").status == 200
        assert house.ask("GET", "/covey/livez").status == 200


def test_what_cannot_be_shown_is_said_in_one_line(house: House) -> None:
    for path, status in (("/jobs/999999", 404), ("/nothing", 404), ("/jobs?state=nope", 400), ("/do/nothing", 404),
                         ("/jobs?before=x", 400), ("/%FF", 400), ("/queues/none", 404)):  # fmt: skip
        said = page(house, path)
        assert said.status == status, (path, said.status)
        assert b"Traceback" not in said.body


def test_the_query_language_is_that_of_the_command_line(house: House) -> None:
    house.engine.enqueue([command("echo wanted", queue="own", key="this-one")])
    said = page(house, "/jobs?q=key:this-one")
    assert b"echo wanted" in said.body
    assert said.body.count(b'data-key="job-') == 1
    assert page(house, "/jobs?q=nonsense:1").status == 400


def test_a_schedule_is_shown_and_paused(house: House) -> None:
    from covey.core.schedule_views import ScheduleBody

    house.engine.put_schedule("nightly", ScheduleBody(cron=["0 3 * * *"], job={"command": "true", "queue": "own"}))
    shown = page(house, "/schedules")
    assert b"nightly" in shown.body
    assert send(house, "/do/pause_schedule", schedule="nightly", csrf=csrf(shown)).status == 303
    assert house.engine.schedule("nightly").state == "paused"
