"""Names that are not text: bytes of a command line that are no UTF-8 arrive as lone surrogates, and name nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from covey.core.view import Edit, Filter
from covey.engine.engine import Engine
from covey.errors import InvalidInput, NotFound
from tests.kit import command

ODD = "caf\udce9"

NAMES: dict[str, Callable[[Engine], Any]] = {
    "job": lambda engine: engine.job(ODD),
    "history": lambda engine: engine.history(ODD),
    "tree": lambda engine: engine.tree(ODD),
    "why": lambda engine: engine.why(ODD),
    "events": lambda engine: engine.events(ODD),
    "output": lambda engine: engine.output(ODD),
    "edit": lambda engine: engine.edit(ODD, Edit(priority=1)),
    "cancel": lambda engine: engine.cancel([1, ODD]),
    "retry": lambda engine: engine.retry([1, ODD]),
    "remove": lambda engine: engine.remove([1, ODD], force=True),
}


@pytest.mark.parametrize("verb", NAMES)
def test_a_job_whose_name_is_no_text_is_not_there(engine: Engine, verb: str) -> None:
    (made,) = engine.enqueue([command()])
    with pytest.raises(NotFound, match=r"no job with the key 'caf\\udce9'"):
        NAMES[verb](engine)
    assert engine.job(made.id).state == "pending"


REFUSED: dict[str, Callable[[Engine], Any]] = {
    "jobs of a queue": lambda engine: engine.jobs(Filter(queue=ODD)),
    "jobs of a task": lambda engine: engine.jobs(Filter(task=ODD)),
    "jobs of a batch": lambda engine: engine.jobs(Filter(batch=ODD)),
    "another queue": lambda engine: engine.edit(1, Edit(queue=ODD)),
    "pause": lambda engine: engine.pause(ODD),
    "resume": lambda engine: engine.resume(ODD),
    "rules": lambda engine: engine.set_queue(ODD, serial=True),
    "a setting": lambda engine: engine.set_setting(ODD, "1"),
    "a value": lambda engine: engine.set_setting("max_attempts", ODD),
    "no setting": lambda engine: engine.unset_setting(ODD),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_what_cannot_be_called_so_is_refused_in_one_line(engine: Engine, verb: str) -> None:
    engine.enqueue([command()])
    with pytest.raises(InvalidInput) as refused:
        REFUSED[verb](engine)
    assert "codec" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert engine.status().counts["pending"] == 1
