-- Pools, their workers, what they hold; jobs that are lent.

-- name: insert_pool
insert into {pools} (id, name, host, boot, pid, ticks, queues, kinds, count, types, app, log, cgroup, version, lease_s,
                     zones, beat_at, registered_at)
values (:id, :name, :host, :boot, :pid, :ticks, :queues, :kinds, :count, :types, :app, :log, :cgroup, :version, :lease_s,
        :zones, :now, :now)

-- name: pool_for_turn
select {turn_state} from {pools} where id = :pool

-- name: pools_for_turns
-- What concerns all of them is looked up once.
select id, {turn_state} from {pools} where id {in_ids:pools}

-- name: beat
update {pools}
set turn_no = :turn_no, beat = beat + 1, beat_at = :now,
    draining_at = case when :draining then coalesce(draining_at, :now) end,
    zygote_pid = coalesce(:zygote_pid, zygote_pid), zygote_ticks = coalesce(:zygote_ticks, zygote_ticks)
where id = :pool

-- name: beat_pools
update {pools} set beat = beat + 1, beat_at = :now where id {in_ids:pools} returning id

-- name: asked_to_stop
select id from {pools} where stop_requested_at is not null

-- name: stopping
-- Of all pools, what `stopping_of` says of one.
select pool, id, fence - 1 from {jobs} where {is_to_stop}

-- name: pools
select id, host, boot, pid, ticks, beat, lease_s, cgroup, name from {pools} order by id

-- name: pool_beat
select beat from {pools} where id = :pool

-- name: remove_pool
delete from {pools} where id = :pool

-- name: request_stop
update {pools} set stop_requested_at = coalesce(stop_requested_at, :now) where id = :pool

-- name: held_by
-- A cancel raises the fence of a running job by one; the pool knows it by the fence of its claim.
select id, case state when 'cancelled' then fence - 1 else fence end from {jobs} where pool = :pool

-- name: held_by_pools
select pool, id, case state when 'cancelled' then fence - 1 else fence end from {jobs}
where pool is not null and pool {in_ids:pools}

-- name: held_page
select id from {jobs} where pool = :pool order by id limit :limit

-- name: stopping_of
select id, fence - 1 from {jobs} where pool = :pool and {is_to_stop}

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
delete from {workers} where pool = :pool and not name {in_texts:names}

-- name: set_given_up
update {pools} set given_up = :given_up where id = :pool

-- name: workers_died
-- Their pool was lost, and they with it: nobody else is left to say so.
insert into {events} (at, kind, pool, worker, text)
select :now, 'parent_died', pool, name, :text from {workers} where pool = :pool and state <> 'dead'

-- name: stage
insert into {staged} (job_id, fence, no, spawn) values (:job, :fence, :no, :spawn)

-- name: staged
select spawn from {staged} where job_id = :job and fence = :fence order by no

-- name: is_loan
-- The name of a pool that was made for one job that a worker took over HTTP.
select name from {pools} where id = :pool and host = 'http' and pid = 0

-- name: loan
-- The job as it is lent to that pool, and what decides when its time is over.
select j.id, j.pool, j.fence, j.state, j.timeout_s, j.tree_deadline_at, j.claimed_at
from {jobs} j join {pools} o on o.id = j.pool
where j.id = :job and j.pool = :pool and o.host = 'http' and o.pid = 0 and j.claimed_at is not null

-- name: timed_loans
-- Every loan that has a time-out. Pools are few, and what each holds is found by an index.
select j.id, j.pool, j.fence, j.state, j.timeout_s, j.tree_deadline_at, j.claimed_at
from {pools} o join {jobs} j on j.pool = o.id
where o.host = 'http' and o.pid = 0 and j.pool is not null and j.state = 'processing' and j.claimed_at is not null
  and (j.timeout_s is not null or j.tree_deadline_at is not null)

-- name: outcome_of_run
select outcome, pool from {attempts} where job_id = :job and fence = :fence

-- name: unstage
delete from {staged} where job_id = :job and fence <= :fence
