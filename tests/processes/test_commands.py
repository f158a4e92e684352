"""Commands as a pool runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from covey.core.model import Policy, Spec
from covey.testing import until
from tests.kit.running import RunningPool, Watch, Yard

SERVED = (
    "test_one_endless_line_is_kept_from_both_ends",
    "test_a_line_for_the_shell_runs_and_completes",
)


def output_of(yard: Yard, command: str | list[str], **options: object) -> str:
    """What a command that must complete wrote to its standard output."""
    (job,) = yard.completes(yard.shell(command, **options))
    return yard.attempt(job.id).stdout


def test_a_line_for_the_shell_runs_and_completes(busy: Yard) -> None:
    id = busy.shell("echo $((6 * 7)); echo oops >&2")
    (job,) = busy.completes(id)
    assert (job.attempts, job.exit_code, job.pool, job.error) == (1, 0, None, None)
    attempt = busy.attempt(id)
    assert (attempt.stdout, attempt.stderr) == ("42\n", "oops\n")


def test_words_are_passed_to_the_program_as_they_are(busy: Yard) -> None:
    assert output_of(busy, ["printf", "%s|", "a b", "$HOME", "'"]) == "a b|$HOME|'|"


def test_a_silent_command_leaves_no_attempt_row(busy: Yard) -> None:
    (job,) = busy.completes(busy.shell("true"))
    assert busy.engine.history(job.id) == []


def test_a_command_runs_in_the_directory_and_environment_it_was_given(busy: Yard, tmp_path: Path) -> None:
    assert output_of(busy, "pwd; echo $FRUIT", cwd=str(tmp_path), env={"FRUIT": "pear"}) == f"{tmp_path}\npear\n"


def test_a_command_without_a_directory_runs_where_the_pool_was_started(busy: Yard) -> None:
    assert output_of(busy, "pwd", cwd="/") == "/\n"
    assert output_of(busy, "pwd", cwd=None) == f"{busy.home}\n"


@pytest.mark.same_disk
def test_a_command_has_no_input_no_descriptors_no_secrets_and_its_own_session(
    busy: Yard, the_pool: RunningPool
) -> None:
    told = output_of(busy, "readlink /proc/self/fd/0; ls /proc/$$/fd; ps -o sid= -p $$; echo $$; env", key="a71")
    stdin, *rest = told.splitlines()
    assert stdin == "/dev/null"
    fds, (sid, pid) = rest[: rest.index("2") + 1], rest[rest.index("2") + 1 :][:2]
    assert fds == ["0", "1", "2"]
    assert sid.strip() == pid
    env = dict(line.split("=", 1) for line in rest if "=" in line)
    ours = {name: value for name, value in env.items() if name.startswith("COVEY_")}
    (job,) = busy.ends(busy.job("a71").id)  # type: ignore[arg-type]
    assert ours == {
        "COVEY_RUN": f"{busy.mark}{the_pool.id}:{job.id}:{job.fence}",
        "COVEY_JOB_ID": str(job.id),
        "COVEY_ATTEMPT": "1",
        "COVEY_MAX_ATTEMPTS": "3",
        "COVEY_QUEUE": "default",
        "COVEY_KEY": "a71",
        "COVEY_ROOT_ID": str(job.id),
        "COVEY_DEPTH": "0",
        "COVEY_MAX_DEPTH": "1",
        "COVEY_SPAWN": f"{busy.side}/live/{job.id}.{job.fence}.spawn",
    }
    assert busy.db not in told.replace(ours["COVEY_SPAWN"], "")  # beside the queue, but no way into it


def test_descriptors_that_the_pool_inherited_do_not_reach_the_command(yard: Yard) -> None:
    secret = os.open(yard.home / "secret", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(secret, True)
    try:
        yard.pool(count=1, commands_only=True, inherit=(secret,))
        assert output_of(yard, "ls -l /proc/self/fd | grep -c secret; true") == "0\n"
    finally:
        os.close(secret)


def test_no_signal_is_blocked_or_ignored_in_a_command(busy: Yard) -> None:
    """A shell would unblock them for itself; a program that does not could not be stopped but by KILL."""
    told = output_of(busy, ["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"])
    below_32 = 0x7FFFFFFF  # the C library keeps two of the others for itself
    assert [int(line.split()[1], 16) & below_32 for line in told.splitlines()] == [0, 0]


def test_umask_is_the_callers(busy: Yard) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert int(output_of(busy, "umask"), 8) == mask


def test_standard_input_ends_at_once(busy: Yard) -> None:
    assert output_of(busy, "cat; echo end") == "end\n"


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (["no-such-program"], 127, "command not found: no-such-program"),
        (["/no/such/program"], 127, "command not found: /no/such/program"),
        (["./plain.txt"], 126, "not executable: ./plain.txt"),
        ("exit 3", 3, "exit code 3"),
        ("echo because >&2; exit 4", 4, "exit code 4: because"),
        ("kill -SEGV $$", 139, "killed by signal 11 (SIGSEGV)"),
    ],
)
def test_what_cannot_run_or_fails_says_why(busy: Yard, command: str | list[str], code: int, error: str) -> None:
    (busy.home / "plain.txt").write_text("no program")
    (job,) = busy.ends(busy.shell(command, max_attempts=1))
    assert (job.state, job.exit_code, job.error, job.attempts) == ("dead", code, error, 1)


def test_a_missing_directory_is_named(busy: Yard) -> None:
    (job,) = busy.ends(busy.shell("true", cwd="/no/such/place", max_attempts=1))
    assert (job.state, job.exit_code) == ("dead", 126)
    assert job.error == "cannot enter the directory /no/such/place: No such file or directory"


def test_arguments_too_long_for_the_system_fail_with_a_reason(busy: Yard) -> None:
    (job,) = busy.ends(busy.shell(["true", "x" * 200_000], max_attempts=1))
    assert (job.state, job.error) == ("dead", "the arguments and the environment are too long for this system")


def test_each_of_these_is_tried_as_often_as_any_failure_and_does_not_loop(busy: Yard) -> None:
    (job,) = busy.ends(busy.shell(["no-such-program"], max_attempts=2, backoff_base=1.0, backoff_cap_s=0.0))
    assert (job.state, job.attempts, len(busy.engine.history(job.id))) == ("dead", 2, 2)


@pytest.mark.parametrize("args", ['{"command": "a\\u0000b"}', "{}", "[]"])
def test_a_request_that_is_no_command_fails_its_job_and_not_the_worker(busy: Yard, args: str) -> None:
    spec = Spec(task="shell", kind="command", args=args, policy=Policy(max_attempts=1))
    (job,) = busy.ends(busy.engine.enqueue([spec])[0].id)
    assert job.state == "dead"
    assert (job.error or "").startswith("this is no command that can be run: ")


def test_delays_of_two_and_four_seconds_are_really_waited_for(yard: Yard) -> None:
    yard.pool(count=1, commands_only=True)
    (job,) = yard.ends(yard.shell("date +%s.%N >>times; exit 1", max_attempts=3), within_s=20)
    first, second, third = map(float, yard.traces("times"))
    assert 2.0 <= second - first < 3.0
    assert 4.0 <= third - second < 5.0
    assert (job.state, job.attempts) == ("dead", 3)


@pytest.mark.same_disk
def test_what_a_command_writes_can_be_followed_while_it_runs(busy: Yard) -> None:
    id = busy.shell("echo early; echo problem >&2; while ! test -e go; do sleep 0.02; done; echo late")
    fence = busy.runs(id).fence
    live = Path(f"{busy.side}/live/{id}.{fence}.out")
    until(lambda: live.exists() and live.read_text() == "early\n", 5, "live output")
    errors = live.with_suffix(".err")
    until(lambda: errors.exists() and errors.read_text() == "problem\n", 5, "live errors")
    (busy.home / "go").touch()
    busy.completes(id)
    assert busy.attempt(id).stdout == "early\nlate\n"
    until(lambda: not live.exists() and not live.with_suffix(".err").exists(), 2, "the live files are gone")


def test_bytes_that_are_no_text_are_stored_and_shown_as_valid_json(busy: Yard) -> None:
    id = busy.shell(
        r"printf 'a\377\376b\000c\033[31mred\033[0m\rover\n'; printf '[red]x[/red]' >&2; exit 1", max_attempts=1
    )
    busy.ends(id)
    shown = json.loads(busy.run("show", str(id), "--json").stdout)
    assert shown["history"][0]["stdout"] == "a\ufffd\ufffdb\ufffdc\x1b[31mred\x1b[0m\rover\n"
    assert shown["history"][0]["stderr"] == "[red]x[/red]"
    plain = busy.run("show", str(id))
    assert plain.returncode == 0
    assert "\x1b[31m" not in plain.stdout
    assert "[red]x[/red]" in plain.stdout


def test_one_endless_line_is_kept_from_both_ends(busy: Yard, proof: object) -> None:
    size = proof(4_000_000, 100_000_000)  # type: ignore[operator]
    id = busy.shell(f"printf first; head -c {size} /dev/zero | tr '\\0' x; printf last")
    busy.completes(id, within_s=60)
    attempt = busy.attempt(id)
    assert attempt.stdout.startswith("firstxxx")
    assert attempt.stdout.endswith("xxxlast")
    assert f"{attempt.stdout_dropped:,} bytes dropped" in attempt.stdout
    assert attempt.stdout_dropped == size + 9 - (1 << 20)


def test_a_command_that_ends_is_reported_at_once(busy: Yard) -> None:
    watch = Watch()
    busy.completes(busy.shell("true"))
    assert watch.within(2)
