"""What the endpoints about queues and settings do."""

from __future__ import annotations

from typing import Any

from ...core import bodies
from ...core.ports import Backend
from .call import ApiCall, Verb, check_queues


def _queues(engine: Backend, call: ApiCall) -> Any:
    return [view for view in engine.queues() if call.guest.may_see(view.name)]


def _set_queue(engine: Backend, call: ApiCall) -> bodies.Nothing:
    rules: bodies.QueueRules = call.body
    queue = call.names["queue"]
    check_queues(call.guest, [queue])
    engine.set_queue(queue, serial=rules.serial, concurrency=rules.concurrency, max_depth=rules.max_depth)
    return bodies.Nothing()


def _pause(engine: Backend, call: ApiCall) -> bodies.Nothing:
    check_queues(call.guest, [call.names["queue"]])
    engine.pause(call.names["queue"], call.body.for_s)
    return bodies.Nothing()


def _resume(engine: Backend, call: ApiCall) -> bodies.Nothing:
    check_queues(call.guest, [call.names["queue"]])
    engine.resume(call.names["queue"])
    return bodies.Nothing()


def _set_setting(engine: Backend, call: ApiCall) -> bodies.SettingValue:
    return bodies.SettingValue(*engine.set_setting(call.names["name"], call.body.value))


def _unset_setting(engine: Backend, call: ApiCall) -> bodies.SettingValue:
    name = engine.unset_setting(call.names["name"])
    return bodies.SettingValue(name, engine.settings()[name])


VERBS: dict[str, Verb] = {
    "status": lambda engine, call: engine.status(),
    "queues": _queues,
    "set_queue": _set_queue,
    "pause": _pause,
    "resume": _resume,
    "settings": lambda engine, call: bodies.Settings(engine.settings(), engine.stored_settings()),
    "set_setting": _set_setting,
    "unset_setting": _unset_setting,
}
