-- What PostgreSQL says its own way: writers run beside each other here, so whoever decides about a row locks it first.
-- The order of locks is in store.py.

-- ── locks ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: lock_pools
select 1 from {pools} where id {in_ids:pools} order by id for no key update

-- name: lock_queues
-- Of the queues whose claims and ends must come one after the other: usually none.
select name from {queues} where serial = 1 or concurrency is not null order by name for no key update

-- name: lock_trees
select id from {jobs} where id in (select root_id from {jobs} where id {in_ids:ids}) order by id for no key update

-- name: lock_families
-- Of jobs that are about to end: only where somebody else is concerned. Most jobs have no family.
select id from {jobs}
where id in (select root_id from {jobs} j
             where id {in_ids:ids}
               and (parent_id is not null or children_total > 0 or lane is not null
                    or exists (select 1 from {edges} where waits_for = j.id)))
order by id for no key update

-- ── what is decided about is locked ─────────────────────────────────────────────────────────────────────────────

-- name: row
-- differs because a row that is decided about is locked until the decision is written.
select id, state, fence, attempts, max_attempts, interruptions, pool, phase, backoff_base, backoff_cap_s, jitter,
       parent_id, root_id, children_total, children_unfinished, children_failed, joins, on_error, queue, key,
       priority, run_at, seq, depth, max_depth, child_no, child_mode, lane
from {jobs} where id = :id for no key update

-- name: rows
-- differs because rows that are decided about are locked, in the order of their ids.
select id, state, fence, attempts, max_attempts, interruptions, pool, phase, backoff_base, backoff_cap_s, jitter,
       parent_id, root_id, children_total, children_unfinished, children_failed, joins, on_error, queue, key,
       priority, run_at, seq, depth, max_depth, child_no, child_mode, lane
from {jobs} where id {in_ids:ids} order by id for no key update

-- name: pool_beat
-- differs because the pool may beat while it is judged: its row is locked first.
select beat from {pools} where id = :pool for no key update

-- name: beat_pools
-- differs because turns of several pools lock their rows by id, and so must the beats.
update {pools} set beat = beat + 1, beat_at = :now
where id in (select id from {pools} where id {in_ids:pools} order by id for no key update)
returning id

-- name: prunable
-- differs because trees that somebody works on are left for the next round, not waited for.
select id, children_total > 0 or lane is not null or exists (select 1 from {edges} where waits_for = {jobs}.id)
from {jobs}
where id > :cursor and id <= :upto and root_id = id
  and ((state = 'completed' and (finished_at < :completed_before or (finished_at > :ahead and :noticed_at < :completed_before)))
    or (state = 'cancelled' and pool is null
        and (finished_at < :cancelled_before or (finished_at > :ahead and :noticed_at < :cancelled_before)))
    or (state = 'dead' and (finished_at < :dead_before or (finished_at > :ahead and :noticed_at < :dead_before))))
order by id
for update skip locked

-- name: take_duty
-- differs because who comes second does not wait: the duty is being done. What another one notices just now is not seen yet,
-- so a duty that was put off ahead tells of it by itself.
update {duties} set next_at = :next_at, cursor = case when :notes and due.next_at > :late then :now else cursor end
from (select name, next_at from {duties} where name = :name and (next_at <= :now or next_at > :late)
      for no key update skip locked) as due
where {duties}.name = due.name
returning cursor, case when due.next_at > :late then :now
                       else (select noticed.cursor from {duties} noticed where noticed.name = 'heal') end

-- name: mend_runs
-- differs because a job that somebody else is about to promote is left to them.
with ahead as materialized (
    select id from {jobs} j
    where state in ('scheduled', 'failed') and (state = 'failed' or fence > 0) and run_at > :now and updated_at > :ahead
      and not exists (select 1 from {events} where job_id = j.id and kind = 'edited')
    limit :limit for no key update skip locked
)
update {jobs} set run_at = :now + run_at - updated_at, updated_at = :now from ahead where {jobs}.id = ahead.id
returning {jobs}.id

-- name: promote
-- differs because others promote at the same time: their rows are skipped. Materialized: as a plain subquery it may be asked once for
-- each row, by the plan of a moment, and then there is no limit.
with due as materialized (
    select id from {jobs} where state in ('scheduled', 'failed') and run_at <= :now
    order by run_at limit :limit for no key update skip locked
)
update {jobs} set state = 'pending', updated_at = :now from due where {jobs}.id = due.id
returning queue

-- ── claims ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: lane_from
-- From the frontier onward (frontier.py).
select -priority, seq, id, kind, queue, null from {jobs}
where state = 'pending' and queue = :queue and kind = :kind and priority = :priority and (seq, id) >= (:seq, :id)
order by seq, id limit :limit

-- name: newest_id
select case when is_called then last_value else 0 end from {jobs_id_seq}

-- name: lane_behind
-- By id alone: with the queue's own condition the planner would pass all the dead again.
select -priority, seq, id, kind, queue, null from {jobs}
where id > :newest and state in ('pending', '') and queue = :queue and kind = :kind
order by id limit :limit

-- name: ready_behind
-- Where the whole look has found nothing: lanes of jobs that came later.
select distinct queue, kind
from (select queue, kind from {jobs}
      where id > :newest and state in ('pending', '') and kind {in_texts:kinds}
        and (:queues::text is null or queue {in_texts:queues})
      order by id limit 100) as fresh

-- name: claim
-- differs because others claim at the same time. The rows are locked already, and looked up by id: with a plain
-- `state = 'pending'` the planner, whose statistics lag behind, takes the index of pending jobs for a short way and
-- reads all of it (0.1 s a turn).
with taken as (
    update {jobs}
    set state = 'processing', pool = :pool, fence = fence + 1, attempts = attempts + 1, unique_key = null,
        claimed_at = :now, updated_at = :now
    where id {in_ids:ids} and state in ('pending', '') and interruptions < :lonely
    returning id, fence, task, kind, attempts, max_attempts, timeout_s, queue, key, cwd, keep_background,
              interruptions, priority, phase, depth, max_depth, parent_id, root_id, joins, child_mode, tree_deadline_at
)
select t.id, t.fence, t.task, t.kind, t.attempts, t.max_attempts, t.timeout_s, t.queue, t.key, t.cwd, t.keep_background,
       t.interruptions, (select args from {payloads} where job_id = t.id), t.priority, t.phase, t.depth, t.max_depth,
       t.parent_id, t.root_id, t.joins, t.child_mode, t.tree_deadline_at
from taken t

-- name: claim_lane
-- Finding and claiming in one, where there is one lane without rules. The pool's own row is locked first: a reaper that
-- has it waits for us or we for it, and without the row there is no claim. What was interrupted often keeps its place
-- until a worker is idle: it is picked, and left. What few jobs have travels as one JSON text,
-- or not at all: 22 columns of a job cost both sides a tenth of the whole turn.
with mine as materialized (
    select id from {pools} where id = :pool for no key update
), picked as materialized (
    select id, interruptions as often from {jobs}
    where state = 'pending' and queue = :queue and kind = :kind
    order by priority desc, seq, id limit :limit for no key update skip locked
), taken as (
    update {jobs} j
    set state = 'processing', pool = mine.id, fence = fence + 1, attempts = attempts + 1, unique_key = null,
        claimed_at = :now, updated_at = :now
    from picked, mine where j.id = picked.id and picked.often < :lonely
    returning j.id, fence, task, attempts, max_attempts, timeout_s, key, cwd, keep_background, interruptions, priority,
              phase, depth, max_depth, parent_id, root_id, joins, child_mode, tree_deadline_at, seq
)
select t.id, t.fence, t.task, t.attempts, t.max_attempts, t.timeout_s, t.key,
       (select args from {payloads} where job_id = t.id), t.seq,
       case when t.cwd is null and t.keep_background = 0 and t.interruptions = 0 and t.priority = 0 and t.phase = 'run'
                 and t.max_depth = 1 and t.parent_id is null and t.joins = 0 and t.child_mode is null
                 and t.tree_deadline_at is null then null
            else json_build_array(t.cwd, t.keep_background, t.interruptions, t.priority, t.phase, t.depth, t.max_depth,
                                  t.parent_id, t.root_id, t.joins, t.child_mode, t.tree_deadline_at)::text end
from taken t order by t.priority desc, t.seq, t.id

-- name: complete
-- differs because the planner must be kept from looking through all that the pool holds: by id, with `coalesce`.
-- :flat: only jobs without a family.
with done as (
    select (report ->> 0)::bigint as id, (report ->> 1)::bigint as fence, report ->> 2 as worker,
           (report ->> 3)::bigint as started_at, (report ->> 4)::integer as exit_code, report ->> 5 as info
    from jsonb_array_elements(:done::jsonb) report
)
update {jobs}
set state = 'completed', pool = null, error = null, exit_code = done.exit_code, worker = done.worker,
    started_at = done.started_at, finished_at = :now, updated_at = :now, info = coalesce(done.info, {jobs}.info)
from done
where {jobs}.id = done.id and coalesce({jobs}.pool, 0) = :pool and {jobs}.fence = done.fence and {jobs}.state = 'processing'
  and (not :flat or (parent_id is null and lane is null and children_total = 0
                     and not exists (select 1 from {edges} where waits_for = {jobs}.id)))
returning {jobs}.id, parent_id, child_no, lane, exists (select 1 from {edges} where waits_for = {jobs}.id)

-- name: insert_express
-- One job without anything special, in a transaction of one message: only if the queue is not sealed and has no rules.
with fresh as materialized (
    select nextval('{jobs_id_seq}') as id from {meta}
    where sealed is null
      and not exists (select 1 from {queues} where name = :queue and (serial = 1 or max_depth <> 1))
), job as (
    insert into {jobs} (id, queue, kind, task, state, priority, seq, max_attempts, run_at, created_at, updated_at,
                        timeout_s, backoff_base, backoff_cap_s, jitter, key, unique_key, root_id, keep_background,
                        batch, labels, created_by, cwd)
    select id, :queue, :kind, :task, :state, :priority, id, :max_attempts, :run_at::bigint, :now, :now,
           :timeout_s::double precision, :backoff_base, :backoff_cap_s, :jitter, :key, :unique_key, id,
           :keep_background, :batch, :labels, :created_by, :cwd
    from fresh
), payload as (
    insert into {payloads} (job_id, args) select id, :args from fresh where :args is not null
), receipt as (
    insert into {receipts} (token, job) select :token::uuid, id from fresh
)
select id from fresh

-- ── the same in other words ─────────────────────────────────────────────────────────────────────────────────────

-- name: ready_lanes
-- differs because a JSON list is a function of another name, and `lateral` is needed to stop at the first row.
with recursive busy (queue) as (
    select min(queue) from {jobs} where state = 'pending' and :queues::text is null
    union all
    select (select min(queue) from {jobs} where state = 'pending' and queue > busy.queue)
    from busy where busy.queue is not null
), asked (queue) as (
    select queue from busy union all select json_array_elements_text(:queues::json)
)
-- With a limit, so that it stays one look at the index for each lane.
select asked.queue, wanted.kind
from asked, json_array_elements_text(:kinds::json) wanted (kind),
     lateral (select 1 from {jobs} where state = 'pending' and queue = asked.queue and kind = wanted.kind limit 1) as one

-- name: ready_counts
-- differs because a JSON list is a function of another name.
with recursive busy (queue) as (
    select min(queue) from {jobs} where state = 'pending'
    union all
    select (select min(queue) from {jobs} where state = 'pending' and queue > busy.queue)
    from busy where busy.queue is not null
)
select busy.queue, wanted.kind, (
    select count(*)
    from (select 1 from {jobs} where state = 'pending' and queue = busy.queue and kind = wanted.kind limit :limit) as few
)
from busy, json_array_elements_text(:kinds::json) wanted (kind) where busy.queue is not null

-- name: add_edge
-- differs because the greater of two is `greatest` here, and `max` there.
insert into {edges} (job_id, waits_for, always) values (:job_id, :root, :always)
on conflict (job_id, waits_for) do update set outcome = null, always = greatest({edges}.always, excluded.always)

-- name: lower_seq
-- differs because the lesser of two is `least` here, and `min` there.
update {jobs} set seq = least(seq, :seq) where id = :id

-- name: where_processing
-- differs because a subquery would be joined into a walk through the whole history, in the order of ids: so an array.
j.id = any (array(select id from {jobs} where pool is not null and state = 'processing'))

-- ── wake-ups ────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: ring_unless_backlog
-- After the commit: who has ten of the last thousand jobs still to choose from is awake anyway.
select pg_notify(:channel, 'pool')::text
where :fresh > (select count(*) from (select 1 from {jobs} where state = 'pending' and queue = :queue and kind = :kind
                                      and priority = :priority
                                      and seq > (select last_value from {jobs_id_seq}) - :fresh - 1000
                                      limit :fresh) as waiting)
   or :fresh > 1000

-- ── whole tables ────────────────────────────────────────────────────────────────────────────────────────────────

-- name: columns
-- differs because each database has its own books about its tables.
select attname::text from pg_attribute
where attrelid = :table::regclass and attnum > 0 and not attisdropped order by attnum

-- name: server_settings
-- What a person may have set on the server, the database or the role.
select name, setting from pg_settings
where name in (
    'autovacuum', 'default_transaction_isolation', 'default_transaction_read_only', 'fsync', 'full_page_writes',
    'idle_session_timeout', 'max_connections', 'server_version', 'server_version_num', 'statement_timeout',
    'superuser_reserved_connections', 'synchronous_commit', 'track_counts', 'transaction_timeout', 'zero_damaged_pages'
)

-- name: server_sessions
select pg_backend_pid(), pg_is_in_recovery(), count(*) from pg_stat_activity where backend_type = 'client backend'

-- name: old_transactions
-- Whatever was dead by then cannot be removed before they end. Of others' sessions we may see less.
select 'pid ' || pid || ' (' || coalesce(nullif(application_name, ''), usename::text, '') || ', ' || state || ')' as who,
       extract(epoch from clock_timestamp() - xact_start)::bigint as age_s
from pg_stat_activity
where datname = current_database() and xact_start < clock_timestamp() - make_interval(secs => :longer_than_s)
union all
select 'prepared transaction ' || gid, extract(epoch from clock_timestamp() - prepared)::bigint
from pg_prepared_xacts
where database = current_database() and prepared < clock_timestamp() - make_interval(secs => :longer_than_s)
order by age_s desc

-- name: dead_rows
select coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0), coalesce(c.reloptions::text, '') ~* 'autovacuum_enabled=(f|of|n|0)'
from pg_class c left join pg_stat_all_tables s on s.relid = c.oid
where c.oid = '{jobs}'::regclass

-- name: last_id
-- differs because numbers are given by sequences here, by a table of SQLite's own there.
select pg_sequence_last_value((:table || '_id_seq')::regclass)

-- name: set_last_id
-- differs because a sequence is set by a function, and knows whether its number was given.
select setval((:table || '_id_seq')::regclass, greatest(:last, 1), :last > 0)

-- name: moment
-- differs because a server knows which transactions have ended: as long as none has, everybody sees the same rows.
select pg_current_snapshot()::text
