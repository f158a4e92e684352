-- What SQLite says its own way.

-- name: moment
-- differs because SQLite counts for each connection what others have committed.
pragma data_version

-- name: rows
-- differs because the writer is alone here: nothing needs to be locked.
select id, state, fence, attempts, max_attempts, interruptions, pool, phase, backoff_base, backoff_cap_s, jitter,
       parent_id, root_id, children_total, children_unfinished, children_failed, joins, on_error, queue, key,
       priority, run_at, seq, depth, max_depth, child_no, child_mode, lane
from {jobs} where id {in_ids:ids}

-- name: claim
-- differs because the writer is alone here: what was selected is still pending, no row needs to be skipped.
update {jobs}
set state = 'processing', pool = :pool, fence = fence + 1, attempts = attempts + 1, unique_key = null,
    claimed_at = :now, updated_at = :now
where id {in_ids:ids} and state = 'pending' and interruptions < :lonely
returning id, fence, task, kind, attempts, max_attempts, timeout_s, queue, key, cwd, keep_background, interruptions,
          (select args from {payloads} where job_id = {jobs}.id), priority, phase, depth, max_depth, parent_id,
          root_id, joins, child_mode, tree_deadline_at

-- name: complete
-- differs because the parts of a JSON list have no types here, and are `json_each`.
update {jobs}
set state = 'completed', pool = null, error = null, exit_code = done.value ->> 4, worker = done.value ->> 2,
    started_at = done.value ->> 3, finished_at = :now, updated_at = :now, info = coalesce(done.value ->> 5, info)
from json_each(:done) done
where {jobs}.id = done.value ->> 0 and coalesce({jobs}.pool, 0) = :pool and {jobs}.fence = done.value ->> 1 and {jobs}.state = 'processing'
returning id, parent_id, child_no, lane, exists (select 1 from {edges} where waits_for = {jobs}.id)

-- name: promote
-- differs because `limit` in a subquery needs no row locks here.
update {jobs} set state = 'pending', updated_at = :now
where id in (select id from {jobs} where state in ('scheduled', 'failed') and run_at <= :now order by run_at limit :limit)
returning queue

-- ── whole tables ────────────────────────────────────────────────────────────────────────────────────────────────

-- name: columns
-- differs because each database has its own books about its tables.
select name from pragma_table_info(:table) order by cid

-- name: last_id
-- differs because numbers are given by a table of SQLite's own here, by sequences there.
select seq from sqlite_sequence where name = :table

-- name: set_last_id
-- differs because that table has no key, and no row before the first number.
delete from sqlite_sequence where name = :table;
insert into sqlite_sequence (name, seq) values (:table, :last)
