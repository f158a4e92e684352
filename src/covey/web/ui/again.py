"""A job as the object and the command line that would make it once more; what is secret stays out of both."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ...core.model import SHELL
from ...core.view import JobView
from ...errors import InvalidInput

COVERED = "•••"  # instead of the value of a variable


def fields_of(job: JobView) -> dict[str, Any] | None:
    """What `covey enqueue` would take; None if an object cannot say it."""
    fields: dict[str, Any] = {}
    arguments = job.args if isinstance(job.args, dict) else {}
    if job.task == SHELL:
        fields |= {name: arguments[name] for name in ("command", "argv") if name in arguments}
        if arguments.get("env"):
            fields["env"] = dict.fromkeys(arguments["env"], COVERED)
        if job.cwd:
            fields["cwd"] = job.cwd
    else:
        fields["task"] = job.task
        positional, named = job.args if isinstance(job.args, list) and len(job.args) == 2 else ([], {})
        if positional and named:
            return None
        if positional or named:
            fields["args"] = positional or named
        if job.kind == "async":
            fields["kind"] = "async"
    fields["queue"] = job.queue
    if job.priority:
        fields["priority"] = job.priority
    fields["max_attempts"] = job.max_attempts
    fields["timeout"] = job.timeout
    if job.batch:
        fields["batch"] = job.batch
    if job.labels:
        fields["labels"] = job.labels
    return fields


def uncovered(fields: dict[str, Any], job: JobView) -> dict[str, Any]:
    """The same with the variables as the job has them, where they were left covered."""
    env = fields.get("env")
    if not isinstance(env, dict) or COVERED not in env.values():
        return fields
    known = job.args.get("env", {}) if isinstance(job.args, dict) else {}
    if lost := [name for name, value in env.items() if value == COVERED and name not in known]:
        raise InvalidInput(f"env: job {job.id} has no variable {lost[0]!r}; write its value")
    return fields | {"env": {name: known[name] if value == COVERED else value for name, value in env.items()}}


def line_of(job: JobView) -> str | None:
    """The words that would enqueue it again; None where a line cannot."""
    fields = fields_of(job)
    if fields is None:
        return None
    if "task" in fields or fields.get("env") or fields.get("labels"):
        covered = {name: value for name, value in fields.items() if value is not None}
        return f"covey enqueue {shlex.quote(json.dumps(covered, ensure_ascii=False))}"
    words = ["covey enqueue"]
    words += ["--queue", shlex.quote(job.queue)] if job.queue != "default" else []
    words += ["--priority", str(job.priority)] if job.priority else []
    words += ["--max-attempts", str(job.max_attempts)]
    words += ["--timeout", f"{job.timeout:g}s"] if job.timeout else ["--timeout", "never"]
    words += ["--batch", shlex.quote(job.batch)] if job.batch else []
    words += ["--", shlex.join(fields["argv"])] if "argv" in fields else [shlex.quote(fields["command"])]
    return " ".join(words)
