"""What the endpoints about the cache do."""

from __future__ import annotations

from ...core.ports import Backend
from ...core.view import CachePruned, CacheWhy
from .call import ApiCall, Verb, seen_job


def _explain(engine: Backend, call: ApiCall) -> CacheWhy:
    ref = call.names["ref"]
    if call.guest.queues is not None:
        seen_job(engine, call.guest, ref)
    return engine.explain_cache(ref)


def _prune(engine: Backend, call: ApiCall) -> CachePruned:
    return engine.prune_cache(call.body.max_bytes)


VERBS: dict[str, Verb] = {
    "cache_status": lambda engine, call: engine.cache_status(),
    "explain_cache": _explain,
    "prune_cache": _prune,
}
