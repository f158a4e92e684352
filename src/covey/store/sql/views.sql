-- What people see.

-- name: view
select {names:record}
from {jobs} j
left join {payloads} p on p.job_id = j.id
left join {results} r on r.job_id = j.id
left join {pools} o on o.id = j.pool
left join {workers} w on w.pool = j.pool and w.job_id = j.id and j.state = 'processing'

-- name: where_states
j.state {in_texts:states}

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
j.id {in_ids:ids}

-- name: where_parent
j.parent_id = :parent and j.child_no > :after

-- name: where_before
j.id < :before

-- name: where_queues
j.queue {in_texts:queues}

-- name: where_tasks
j.task {in_texts:tasks}

-- name: where_task_prefix
substr(j.task, 1, cast(:task_length as integer)) = :task_prefix

-- name: where_key
j.key = :key

-- name: where_label
-- The labels are one compact JSON text, in which a quote inside a word is written otherwise.
replace(j.labels, :label, '') <> j.labels

-- name: where_error
lower(j.error) like :error escape '!'

-- name: where_text
(lower(p.args) like :text escape '!' or lower(j.task) like :text escape '!' or lower(j.key) like :text escape '!')

-- name: where_older
j.created_at <= :older

-- name: where_younger
j.created_at >= :younger

-- name: where_tries_least
j.attempts >= :tries_least

-- name: where_tries_most
j.attempts <= :tries_most

-- name: where_tree
-- That job and all below it.
j.id in (
    with recursive below (id) as (
        select id from {jobs} where id = :tree
        union all
        select c.id from {jobs} c join below b on c.parent_id = b.id
    )
    select id from below)

-- name: where_pool
j.id in (select id from {jobs} where pool = :pool)

-- name: where_worker
w.name = :worker

-- name: where_floor
j.id >= :floor

-- name: newest
select max(id) from {jobs}

-- name: attempts_of
select number, fence, outcome, worker, pool, started_at, finished_at, exit_code, error, detail, stdout, stderr,
       stdout_dropped, stderr_dropped
from {attempts} where job_id = :id order by fence

-- name: counts
-- What an index counts. Completed jobs are in none: `counted` and `uncounted` say how many rows there are in all.
select queue, 'pending', count(*) from {jobs} where state = 'pending' group by queue
union all
select queue, state, count(*) from {jobs}
where state in ('scheduled', 'failed', 'waiting', 'blocked', 'dead', 'cancelled') group by queue, state
union all
select queue, 'processing', count(*) from {jobs} where pool is not null and state = 'processing' group by queue

-- name: counted
-- Of each queue: its rows up to the id that was counted, and the ended ones that were removed.
select queue, sum(jobs), sum(completed), sum(dead), sum(cancelled) from {counted} group by queue

-- name: uncounted
-- Its rows behind that: few, as long as somebody takes turns.
select queue, count(*) from {jobs} where id > coalesce((select cursor from {duties} where name = 'count'), 0) group by queue

-- name: count_window
-- How far the next piece may be counted: nobody can still put a job before that.
select max(id) from (select id from {jobs} where id > :cursor order by id limit :limit) as next

-- name: count_more
insert into {counted} (queue, jobs) select queue, count(*) from {jobs} where id > :cursor and id <= :upto group by queue
on conflict (queue) do update set jobs = {counted}.jobs + excluded.jobs

-- name: add_sample
insert into {samples} (minute, queue, completed, dead, cancelled, waiting, running)
values (:minute, :queue, :completed, :dead, :cancelled, :waiting, :running)
on conflict (minute, queue) do nothing

-- name: sampled
select max(minute) from {samples}

-- name: samples
select minute, queue, completed, dead, cancelled, waiting, running from {samples} where minute >= :since order by minute

-- name: prune_samples
delete from {samples} where minute < :before

-- name: latest_runs
-- The newest jobs that have run: what may be looked at without an index.
select id, queue, task, state, worker, created_at, run_at, coalesce(started_at, claimed_at), finished_at
from (select * from {jobs} order by id desc limit :most) as newest
where (started_at is not null and finished_at >= :since) or state = 'processing'

-- name: oldest_pending
-- Of those that are next in their lanes: of a million it is not worth looking at each.
select min(updated_at) from (
    select updated_at from {jobs} where state = 'pending' order by queue, kind, priority desc, seq, id limit 5000
) as next

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
) as ahead

-- name: place
select priority, seq from {jobs} where id = :id

-- name: place_in_lane
select j.lane, q.serial_root, (select count(*) from {jobs} r where r.pool is not null and r.queue = j.queue)
from {jobs} j join {queues} q on q.name = j.queue where j.id = :id

-- name: orphans
select count(*) from {jobs} where pool is not null and pool not in (select id from {pools})

-- name: oldest_ready
-- Of each queue among those that are next in it: of a million it is not worth looking at each.
select q.name, (
    select min(updated_at) from (
        select updated_at from {jobs} where state = 'pending' and queue = q.name order by kind, priority desc, seq, id limit 1000
    ) as next
) from {queues} q

-- name: oldest_runs
select queue, min(claimed_at) from {jobs} where pool is not null and state = 'processing' group by queue
