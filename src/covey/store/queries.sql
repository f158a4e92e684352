-- Every statement has a name. {jobs} and the like are tables; :name are parameters.
-- What two databases must say differently is overridden in <dialect>.sql, with the reason.

-- name: meta
select database_id, schema, sealed from {meta}

-- name: config
select key, value from {config}

-- name: set_config
insert into {config} (key, value) values (:key, :value) on conflict (key) do update set value = excluded.value

-- name: unset_config
delete from {config} where key = :key

-- name: add_queue
insert into {queues} (name, created_at) values (:name, :now) on conflict do nothing

-- name: queues
select name, paused_at, resume_at, serial, concurrency, max_depth from {queues} order by name

-- name: paused_queues
select name from {queues} where paused_at is not null and (resume_at is null or resume_at > :now)

-- name: pause_queue
update {queues} set paused_at = :now, resume_at = :resume_at where name = :name

-- name: resume_queue
update {queues} set paused_at = null, resume_at = null where name = :name

-- name: overdue_pauses
select name from {queues} where paused_at is not null and resume_at <= :now

-- ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: insert_job
insert into {jobs} (id, queue, kind, task, state, priority, seq, max_attempts, run_at, created_at, updated_at, timeout_s,
                    backoff_base, backoff_cap_s, jitter, key, unique_key, root_id, keep_background, batch, labels,
                    created_by, cwd)
values (:id, :queue, :kind, :task, :state, :priority, :id, :max_attempts, :run_at, :now, :now, :timeout_s,
        :backoff_base, :backoff_cap_s, :jitter, :key, :unique_key, :id, :keep_background, :batch, :labels,
        :created_by, :cwd)

-- name: insert_payload
insert into {payloads} (job_id, args) values (:id, :args)

-- name: insert_copy
insert into {jobs} (id, queue, kind, task, state, priority, seq, max_attempts, created_at, updated_at, timeout_s,
                    backoff_base, backoff_cap_s, jitter, root_id, keep_background, batch, labels, created_by, cwd)
select :id, queue, kind, task, 'pending', priority, :id, max_attempts, :now, :now, timeout_s,
       backoff_base, backoff_cap_s, jitter, :id, keep_background, batch, labels, created_by, cwd
from {jobs} where id = :of

-- name: copy_payload
insert into {payloads} (job_id, args) select :id, args from {payloads} where job_id = :of

-- name: id_of_key
select id from {jobs} where key = :key and parent_id is null

-- name: id_of_unique_key
select id from {jobs} where unique_key = :unique_key

-- ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: row
select id, state, fence, attempts, max_attempts, interruptions, pool, phase, backoff_base, backoff_cap_s, jitter,
       parent_id, root_id, children_total, children_unfinished, children_failed, joins, on_error, queue, key
from {jobs} where id = :id

-- name: change
update {jobs}
set state         = :state,
    fence         = fence + :fence,
    attempts      = case when :fresh_attempts then 0 else attempts + :attempts end,
    interruptions = case when :fresh_attempts then 0 else interruptions + :interruptions end,
    phase         = coalesce(:phase, phase),
    run_at        = coalesce(:run_at, run_at),
    pool          = case when :keeps_pool then pool end,
    error         = :error,
    exit_code     = :exit_code,
    worker        = coalesce(:worker, worker),
    started_at    = coalesce(:started_at, started_at),
    finished_at   = :finished_at,
    info          = coalesce(:info, info),
    unique_key    = case when :finished_at is null then unique_key end,
    updated_at    = :now
where id = :id and state = :was and fence = :expected

-- name: edit_job
update {jobs}
set priority = coalesce(:priority, priority),
    queue = coalesce(:queue, queue),
    max_attempts = coalesce(:max_attempts, max_attempts),
    state = coalesce(:state, state),
    run_at = case when :reschedules then :run_at else run_at end,
    updated_at = :now
where id = :id and state = :was and fence = :expected

-- name: remove_job
delete from {jobs} where id = :id

-- name: insert_attempt
insert into {attempts} (job_id, fence, number, phase, outcome, worker, pool, started_at, finished_at, exit_code, error,
                        detail, stdout, stderr, stdout_dropped, stderr_dropped)
values (:job_id, :fence, :number, :phase, :outcome, :worker, :pool, :started_at, :finished_at, :exit_code, :error,
        :detail, :stdout, :stderr, :stdout_dropped, :stderr_dropped)
on conflict do nothing

-- name: set_result
insert into {results} (job_id, body) values (:id, :body) on conflict (job_id) do update set body = excluded.body

-- name: add_event
insert into {events} (at, kind, job_id, pool, worker, text) values (:at, :kind, :job_id, :pool, :worker, :text)

-- ── pools and turns ─────────────────────────────────────────────────────────────────────────────────────────────

-- name: insert_pool
insert into {pools} (id, name, host, boot, pid, ticks, queues, kinds, count, types, app, log, cgroup, version, lease_s,
                     beat_at, registered_at)
values (:id, :name, :host, :boot, :pid, :ticks, :queues, :kinds, :count, :types, :app, :log, :cgroup, :version, :lease_s,
        :now, :now)

-- name: pool_for_turn
select turn_no, stop_requested_at from {pools} where id = :pool

-- name: beat
update {pools}
set turn_no = :turn_no, beat = beat + 1, beat_at = :now,
    draining_at = case when :draining then coalesce(draining_at, :now) end,
    zygote_pid = coalesce(:zygote_pid, zygote_pid), zygote_ticks = coalesce(:zygote_ticks, zygote_ticks)
where id = :pool

-- name: pools
select id, host, boot, pid, ticks, beat, lease_s, cgroup from {pools} order by id

-- name: pool_beat
select beat from {pools} where id = :pool

-- name: remove_pool
delete from {pools} where id = :pool

-- name: request_stop
update {pools} set stop_requested_at = coalesce(stop_requested_at, :now) where id = :pool

-- name: held_by
-- A cancel raises the fence of a running job by one; the pool knows it by the fence of its claim.
select id, case state when 'cancelled' then fence - 1 else fence end from {jobs} where pool = :pool

-- name: held_page
select id from {jobs} where pool = :pool order by id limit :limit

-- name: stopping_of
select id, fence - 1 from {jobs} where pool = :pool and pool is not null and state = 'cancelled'

-- name: held_without_pool
select distinct pool from {jobs} where pool is not null and pool not in (select id from {pools})

-- name: put_worker
insert into {workers} (pool, name, pid, ticks, kind, queue, state, job_id, fence, busy_since, done, failed, memory,
                       started_at, error)
values (:pool, :name, :pid, :ticks, :kind, :queue, :state, :job_id, :fence, :busy_since, :done, :failed, :memory,
        :started_at, :error)
on conflict (pool, name) do update
set pid = excluded.pid, ticks = excluded.ticks, kind = excluded.kind, queue = excluded.queue, state = excluded.state,
    job_id = excluded.job_id, fence = excluded.fence, busy_since = excluded.busy_since, done = excluded.done,
    failed = excluded.failed, memory = excluded.memory, started_at = excluded.started_at, error = excluded.error

-- name: prune_workers
delete from {workers} where pool = :pool and name not in (select value from json_each(:names))

-- name: set_given_up
update {pools} set given_up = :given_up where id = :pool

-- name: workers_died
-- Their pool was lost, and they with it: nobody else is left to say so.
insert into {events} (at, kind, pool, worker, text)
select :now, 'parent_died', pool, name, :text from {workers} where pool = :pool and state <> 'dead'

-- name: ready_lanes
with recursive busy (queue) as (
    select min(queue) from {jobs} where state = 'pending'
    union all
    select (select min(queue) from {jobs} where state = 'pending' and queue > busy.queue)
    from busy where busy.queue is not null
)
select busy.queue, wanted.value from busy, json_each(:kinds) wanted
where exists (select 1 from {jobs} where state = 'pending' and queue = busy.queue and kind = wanted.value)

-- name: lane
select -priority, seq, id, kind from {jobs}
where state = 'pending' and queue = :queue and kind = :kind
order by priority desc, seq, id limit :limit

-- name: next_due
select min(run_at) from {jobs} where state in ('scheduled', 'failed')

-- name: undrained
select exists (
    select 1 from {jobs} where state = 'pending' and queue in (select value from json_each(:open)) and kind in (select value from json_each(:kinds))
) or exists (
    select 1 from {jobs} where state in ('scheduled', 'failed') and state = 'failed'
                           and queue in (select value from json_each(:open)) and kind in (select value from json_each(:kinds))
) or exists (
    select 1 from {jobs} where pool is not null and state = 'processing'
                           and queue in (select value from json_each(:queues)) and kind in (select value from json_each(:kinds))
)

-- name: peek
select (select 1 from {pools} where id = :pool),
       (select stop_requested_at from {pools} where id = :pool),
       exists (select 1 from {jobs} where pool = :pool and pool is not null and state = 'cancelled'),
       (select min(run_at) from {jobs} where state in ('scheduled', 'failed'))

-- ── duties ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: take_duty
insert into {duties} (name, next_at) values (:name, :next_at)
on conflict (name) do update set next_at = excluded.next_at where {duties}.next_at <= :now
returning name

-- name: duty_cursor
select cursor from {duties} where name = :name

-- name: set_duty_cursor
update {duties} set cursor = :cursor, next_at = :next_at where name = :name

-- name: sweep_window
select max(id) from (select id from {jobs} where id > :cursor order by id limit :limit)

-- name: prunable
select id from {jobs}
where id > :cursor and id <= :upto and root_id = id
  and ((state = 'completed' and finished_at < :completed_before)
    or (state = 'cancelled' and pool is null and finished_at < :cancelled_before)
    or (state = 'dead' and finished_at < :dead_before))

-- name: prune_events
delete from {events} where id in (select id from {events} where at < :before order by at limit :limit)

-- ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: view
select j.id, j.key, j.queue, j.task, p.args, j.state, j.phase, j.priority, j.attempts, j.max_attempts, j.run_at,
       j.created_at, j.updated_at, j.started_at, j.finished_at, j.timeout_s, j.cwd, j.pool, j.worker, o.name, o.beat_at,
       o.lease_s, j.exit_code, j.error, r.body, j.parent_id, j.root_id, j.children_total, j.children_unfinished,
       j.children_failed, j.batch, j.labels, j.interruptions, j.info, j.kind, j.fence, w.name, w.busy_since
from {jobs} j
left join {payloads} p on p.job_id = j.id
left join {results} r on r.job_id = j.id
left join {pools} o on o.id = j.pool
left join {workers} w on w.pool = j.pool and w.job_id = j.id and j.state = 'processing'

-- name: where_states
j.state in (select value from json_each(:states))

-- name: where_dead
j.state = 'dead'

-- name: where_processing
-- As a list of ids, because a page in the order of ids would otherwise read the whole history for it.
j.id in (select id from {jobs} where pool is not null and state = 'processing')

-- name: where_queue
j.queue = :queue

-- name: where_task
j.task = :task

-- name: where_batch
j.batch = :batch

-- name: where_ids
j.id in (select value from json_each(:ids))

-- name: where_before
j.id < :before

-- name: attempts_of
select number, fence, outcome, worker, pool, started_at, finished_at, exit_code, error, detail, stdout, stderr,
       stdout_dropped, stderr_dropped
from {attempts} where job_id = :id order by fence

-- name: states_of
select id, state from {jobs} where id in (select value from json_each(:ids))

-- name: counts
select queue, state, count(*) from {jobs} group by queue, state

-- name: oldest_pending
select min(updated_at) from {jobs} where state = 'pending'

-- name: pool_rows
select o.id, o.name, o.host, o.boot, o.pid, o.ticks, o.queues, o.kinds, o.count, o.types, o.app, o.log, o.given_up,
       o.version, o.beat_at, o.lease_s, o.registered_at, o.stop_requested_at, o.draining_at,
       (select count(*) from {jobs} where pool = o.id)
from {pools} o order by o.id

-- name: worker_rows
select pool, name, kind, state, pid, ticks, started_at, queue, job_id, fence, busy_since, done, failed, memory, error
from {workers} order by pool, name

-- name: events_of_job
select id, at, kind, job_id, pool, worker, text from {events} where job_id = :id order by id desc limit :limit

-- name: events
select id, at, kind, job_id, pool, worker, text from {events} order by id desc limit :limit

-- name: events_of_pools
select id, at, kind, job_id, pool, worker, text from {events}
where pool is not null and job_id is null and id > :after and (:pool is null or pool = :pool)
order by id desc limit :limit

-- name: position
select count(*) from (
    select 1 from {jobs}
    where state = 'pending' and queue = :queue and (priority > :priority or (priority = :priority and (seq, id) < (:seq, :id)))
    limit 100001
)

-- name: place
select priority, seq from {jobs} where id = :id

-- name: orphans
select count(*) from {jobs} where pool is not null and pool not in (select id from {pools})
