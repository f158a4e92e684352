"""covey server: who has the port, who may come from elsewhere, how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from covey import __version__
from covey.open import open_engine
from covey.testing.until import until

from .process import Running, ask, connected, running


def covey(*words: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "covey", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, **(env or {})},
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@contextmanager
def somebody(say: bytes | None) -> Iterator[int]:
    """A port where somebody answers so to everything; None: not at all."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def serve() -> None:
            listening.settimeout(0.1)
            kept = []
            while not ended.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                kept.append(connection)
                if say is not None:
                    connection.recv(4096)
                    connection.sendall(say)
                    connection.close()
            for each in kept:
                each.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    ("say", "who"),
    [
        (
            b"HTTP/1.1 404 Not Found\r\nServer: nginx/9\r\nContent-Length: 0\r\n\r\n",
            "another program answers there (nginx/9)",
        ),
        (b'HTTP/1.1 200 OK\r\n\r\n{"hello": 1}', "another program answers there"),
        (None, "something that does not speak HTTP has it"),
        (b"SSH-2.0-OpenSSH\r\n", "something that does not speak HTTP has it"),
    ],
)
def test_a_taken_port_names_who_answers_there(tmp_path: Path, say: bytes | None, who: str) -> None:
    with somebody(say) as port:
        said = one_line(covey("server", "--db", "q.db", "--port", str(port), cwd=tmp_path), 1)
    assert f"127.0.0.1:{port} is taken" in said
    assert who in said
    assert "--port" in said


def test_one_server_for_a_queue_and_a_port(tmp_path: Path) -> None:
    with running(tmp_path / "queue.db") as server:
        said = one_line(covey("server", "--db", "queue.db", "--port", "0", cwd=tmp_path), 1)
        assert server.url in said
        assert str(server.process.pid) in said
        assert "covey server stop" in said
        said = one_line(covey("server", "--db", "other.db", "--port", str(server.port), cwd=tmp_path), 1)
        assert f"a Covey server, version {__version__}, answers there" in said
        stopped = covey("server", "stop", "--db", "queue.db", cwd=tmp_path)
        assert (stopped.returncode, stopped.stdout) == (0, f"stopped {server.url}\n")
        assert server.process.wait(60) == 0
        assert not server.note.exists()
    again = covey("server", "stop", "--db", "queue.db", cwd=tmp_path)
    assert again.returncode == 0
    assert "no server of this queue runs" in again.stderr


def test_a_note_of_a_server_that_is_gone_is_ignored(tmp_path: Path) -> None:
    with running(tmp_path / "queue.db") as server:
        note = server.note.read_text()
        server.kill()
        server.note.write_text(note)
        with running(tmp_path / "queue.db") as second:
            assert second.process.pid != server.process.pid
            assert ask(second.port, "GET", "/health")[0] == 200
        assert not server.note.exists()
        server.note.write_text("{ half a no")
        assert "no server" in covey("server", "stop", "--db", "queue.db", cwd=tmp_path).stderr
        server.process.returncode = 0  # it was killed on purpose


WRONG = [
    (("--host", "0.0.0.0"), 1, "covey token create"),
    (("--host", "::"), 1, "covey token create"),
    (("--host", "127.0.0.1", "--host", "0.0.0.0"), 1, "covey token create"),
    (("--require-token",), 1, "covey token create"),
    (("--port", "70000"), 2, "1 to 65535"),
    (("--port", "-5"), 2, "1 to 65535"),
    (("--port", "http"), 2, "http"),
    (("--db", "memory:x"), 2, "memory"),
    (("begin",), 2, "covey server stop"),
    (("stop", "--port", "5"), 2, "takes no address"),
]


@pytest.mark.parametrize(("words", "code", "hint"), WRONG)
def test_nonsense_and_open_doors_are_refused(tmp_path: Path, words: tuple[str, ...], code: int, hint: str) -> None:
    done = covey("server", *(() if "--db" in words else ("--db", "q.db")), *words, cwd=tmp_path)
    assert done.returncode == code, done
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["no such host", "999.1.1.1", "203.0.113.7", "host.invalid", "", "127.0.0.1:80"])
def test_a_host_that_is_none_of_ours_is_refused(tmp_path: Path, host: str) -> None:
    """With a token, so that this is all that is wrong."""
    assert covey("token", "create", "a", "--role", "admin", "--db", "q.db", cwd=tmp_path).returncode == 0
    said = one_line(covey("server", "--db", "q.db", "--port", "0", "--host", host, cwd=tmp_path), 2)
    assert "--host" in said


def test_a_wide_server_asks_for_a_token_even_on_the_loopback(tmp_path: Path) -> None:
    token = covey("token", "create", "a", "--role", "read", "--db", "queue.db", cwd=tmp_path).stdout.strip()
    with running(tmp_path / "queue.db", "--host", "0.0.0.0") as server:
        assert ask(server.port, "GET", "/v1/server")[0] == 401
        assert ask(server.port, "GET", "/v1/server", token=token)[0] == 200
        assert ask(server.port, "GET", "/health")[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_answers_everybody_who_waits(tmp_path: Path, number: int) -> None:
    with running(tmp_path / "queue.db") as server:
        job = json.loads(server.ask("POST", "/v1/jobs", {"jobs": [{"command": "true"}]})[1])[0]["id"]
        asked: list[tuple[str, str, object]] = [
            ("POST", "/v1/jobs/wait", {"ids": [job], "timeout_s": 60}),
            ("POST", "/v1/jobs/claim?wait=60", {"queues": ["nothing"]}),
            ("GET", f"/v1/stream?job={job}", None),
        ]
        answers: list[tuple[int, bytes]] = []
        threads = [threading.Thread(target=lambda each=each: answers.append(server.ask(*each))) for each in asked]
        for thread in threads:
            thread.start()
        until(lambda: connections(server) >= len(asked), 10)
        assert server.stop(number) == 0
        for thread in threads:
            thread.join(10)
        assert [status for status, _ in answers] == [200] * len(asked), answers
        assert "Traceback" not in server.said
    assert not server.note.exists()


def connections(server: Running) -> int:
    """How many have been accepted and not closed yet."""
    import psutil

    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(each.status == "ESTABLISHED" for each in found)


# ── A87 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_is_nowhere_but_in_its_owners_hands(tmp_path: Path) -> None:
    """Not in the log, in errors, in arguments or environments, nor in the database and the files beside it."""
    from .process import environ_and_arguments

    made = [
        covey("token", "create", f"t{n}", "--role", role, "--db", "queue.db", cwd=tmp_path).stdout.strip()
        for n, role in enumerate(("admin", "worker"))
    ]
    (tmp_path / "token").write_text(made[1])
    secrets = [text.rpartition("_")[2] if text.count("_") == 2 else text.split("_", 2)[2] for text in made]
    with running(tmp_path / "queue.db", "--require-token") as server:
        body = {"jobs": [{"command": "env > job.env; sleep 60 & sleep 1", "cwd": str(tmp_path)}]}
        assert server.ask("POST", "/v1/jobs", body, made[0])[0] == 200
        pool = subprocess.Popen(
            [sys.executable, "-m", "covey", "worker", "start", "--db", server.url, "--count", "1"],
            cwd=tmp_path,
            env={**os.environ, "COVEY_TOKEN_FILE": str(tmp_path / "token"), "TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=(tmp_path / "pool.log").open("wb"),
        )
        try:
            until(lambda: (tmp_path / "job.env").exists(), 30)
            import psutil

            everybody = [server.process.pid, pool.pid]
            everybody += [each.pid for pid in everybody for each in psutil.Process(pid).children(recursive=True)]
            assert len(everybody) >= 4, "server, pool, zygote and job"
            seen = "".join(environ_and_arguments(pid) for pid in everybody)
            said = b""
            for method, target, token in (
                ("GET", "/nowhere", made[0]),
                ("GET", "/v1/server", made[0] + "x"),
                ("POST", "/v1/jobs", made[0]),
                ("GET", f"/v1/jobs/{made[0]}", made[0]),
            ):
                status, answer = server.ask(method, target, None, token)
                assert status >= 400
                said += answer if made[0] not in target else b""
            with connected(server.port, b"GET /%s HTTP/9.9\r\n\r\n" % made[0].encode()) as broken:
                said += broken.recv(4096)
        finally:
            pool.send_signal(signal.SIGINT)
            pool.wait(20)
    logged = server.said + (tmp_path / "pool.log").read_text(errors="replace")
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each.name not in ("token", "server.log")]
    kept = b"".join(each.read_bytes() for each in files)
    for secret in secrets:
        assert secret not in seen
        assert secret not in logged
        assert secret.encode() not in said
        assert secret.encode() not in kept, [each for each in files if secret.encode() in each.read_bytes()]


def test_the_comparison_decides_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever hmac.compare_digest says is what counts, and it is asked about every token, known or not."""
    from covey.core import tokens

    from .house import open_house

    compared: list[tuple[str, str]] = []
    with open_house(tmp_path / "queue.db", needs_token=True) as house:
        token = house.token("read")
        verdict = [True]

        class Compare:
            @staticmethod
            def compare_digest(a: str, b: str) -> bool:
                compared.append((a, b))
                return verdict[0]

        monkeypatch.setattr(tokens, "hmac", Compare)
        other = f"covey_1_{'A' * 43}"
        assert house.ask("GET", "/v1/server", token=other).status == 200
        verdict[0] = False
        assert house.ask("GET", "/v1/server", token=token).status == 401
        assert house.ask("GET", "/v1/server", token=f"covey_99_{'A' * 43}").status == 401
        assert house.ask("GET", "/v1/server", token="nonsense").status == 401
    assert len(compared) == 4
    assert all(len(each) == 64 for pair in compared for each in pair), "digests, never secrets"


def test_no_token_may_travel_in_a_url(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "queue.db"))
    token = engine.create_token("a", "admin")[1]
    engine.close()
    with running(tmp_path / "queue.db", "--require-token") as server:
        for target in (f"/v1/server?token={token}", f"/v1/server?access_token={token}", f"/v1/{token}/server"):
            assert server.ask("GET", target)[0] in (401, 404)
