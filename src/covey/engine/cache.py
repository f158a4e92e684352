"""What people ask of the cache: what it holds, why a job was or was not in it, that it become smaller."""

from __future__ import annotations

import json
from collections.abc import Callable

from .. import settings as config
from ..core.cache_key import Parts, nearest, read
from ..core.machine import SECOND
from ..core.view import CachePruned, CacheStatus, CacheWhy, JobView, rfc3339
from ..env import failpoint
from ..errors import InvalidInput
from ..store.store import Store
from .again import repeated
from .duties import collect_cache
from .duties.duty import BATCH
from .sealing import writing
from .views import Ref, Views

MOST_LIKE = 1000  # records of the same task that are compared


class CacheVerbs:
    def __init__(self, store: Store, clock: Callable[[], int], views: Views) -> None:
        self._store, self._clock, self._views = store, clock, views

    def cache_status(self) -> CacheStatus:
        """What is kept, and what it has been good for so far, as long as its jobs are known."""
        stored: dict[str, str] = dict(self._store.ask("config"))
        (records, size, oldest, _), *_ = self._store.ask("cache_counts")
        (hits, saved_us), *_ = self._store.ask("cache_hits", queue=None)
        return CacheStatus(
            records=records,
            bytes=size,
            max_bytes=config.effective(stored, {})["cache_max_bytes"],
            hits=hits,
            misses=self._store.value("cache_misses", queue=None),
            saved_s=saved_us / SECOND,
            oldest_at=rfc3339(oldest),
        )

    def explain_cache(self, ref: Ref) -> CacheWhy:
        """Why the job ran or did not, in words: which parts of its key differ from the nearest record."""
        job = self._views.job(ref)
        if job.cache_key is None:
            return CacheWhy(id=job.id, key=None, outcome="uncached", reason="it did not ask for the cache")
        parts = self._parts(job)
        outcome, reason = self._outcome(job)
        found, lines = None, []
        if parts is not None and job.cached_from is None:
            rows = self._store.ask("records_like", task=job.task, queue=job.queue, limit=MOST_LIKE)
            others = [
                (job_id, read(text)) for key, text, job_id, _ in rows if key != job.cache_key and job_id != job.id
            ]
            found, lines = nearest(parts, others) or (None, [])
        return CacheWhy(
            id=job.id,
            key=job.cache_key,
            outcome=outcome,
            reason=reason,
            nearest=found,
            differences=lines,
            parts=None if parts is None else json.loads(parts.text()),
        )

    def _parts(self, job: JobView) -> Parts | None:
        """What its key was made of, as far as that is known still."""
        texts = [row[5] for row in self._store.ask("cached_calls", ids=f"[{job.id}]")]
        texts += [row[3] for row in self._store.ask("record", key=job.cache_key)]
        return next((read(text) for text in texts if text is not None), None)

    def _outcome(self, job: JobView) -> tuple[str, str]:
        if job.cached_from is not None:
            return "hit", f"it has the result of job {job.cached_from}; nothing ran"
        record = next(iter(self._store.ask("record", key=job.cache_key)), None)
        if record is not None and record[4] == job.id:
            return "kept", "it ran, and its result is kept for whoever asks for the same"
        if job.state != "completed":
            return "open", self._views.why(job.id).reason
        uncached = next((event.text for event in self._views.events(job.id) if event.kind == "uncached"), None)
        if uncached is not None:
            return "not kept", f"it ran; {uncached}"
        if record is not None:
            return "kept", f"it ran, and of its key the result of job {record[4]} is kept"
        return "not kept", "it ran, and its result is not kept any more"

    @repeated
    def prune_cache(self, max_bytes: int | None = None) -> CachePruned:
        """No more than so many bytes (None: as configured) are kept: what was used least is gone."""
        if max_bytes is not None and max_bytes < 0:
            raise InvalidInput(f"max_bytes {max_bytes}: 0 or more")
        gone, before = 0, self._store.ask("cache_counts")[0][1]
        while True:
            with writing(self._store):
                stored: dict[str, str] = dict(self._store.ask("config"))
                batch = collect_cache.drop(self._store, stored, self._clock() + SECOND, most=max_bytes)
                failpoint("cache.before_prune")
            gone += batch
            if batch < BATCH:
                return CachePruned(gone, before - self._store.ask("cache_counts")[0][1])
