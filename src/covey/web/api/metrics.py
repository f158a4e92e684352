"""What Prometheus asks for."""

from __future__ import annotations

from ...core.ports import Backend
from ...telemetry import prometheus
from ..request import Plain
from .call import ApiCall


def metrics(engine: Backend, call: ApiCall) -> Plain:
    """Of the queues that the token is for; pools and findings belong to whoever may see them all."""
    return Plain(prometheus.text(engine, call.guest.may_see, whole=call.guest.queues is None))
