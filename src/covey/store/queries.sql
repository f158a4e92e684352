-- Every statement has a name. {jobs} and the like are tables; :name are parameters.
-- What two databases must say differently is overridden in <dialect>.sql, with the reason.

-- name: meta
select database_id, schema, sealed from {meta}

-- name: seal
update {meta} set sealed = :sealed

-- name: become
-- The same queue as another, in its new place.
update {meta} set database_id = :database_id, sealed = :sealed

-- name: take_copy
-- Whoever began last has the copy: only that run may end it.
insert into {duties} (name, next_at, cursor) values ('copy', :now, :token)
on conflict (name) do update set next_at = excluded.next_at, cursor = excluded.cursor

-- name: drop_copy
delete from {duties} where name = 'copy'

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

-- name: special_queues
-- What an enqueue must know, in one look: the queues with rules for new jobs (usually none), and the seal.
select q.name, q.serial, q.max_depth, m.sealed from {meta} m left join {queues} q on q.serial = 1 or q.max_depth <> 1

-- name: queue_rules
-- Only queues whose jobs may not simply be claimed: usually none.
select name, paused_at is not null and (resume_at is null or resume_at > :now), serial, serial_root, concurrency
from {queues} where paused_at is not null or serial = 1 or concurrency is not null

-- name: set_queue
update {queues}
set serial = coalesce(:serial, serial), max_depth = coalesce(:max_depth, max_depth),
    concurrency = case when :limits then :concurrency else concurrency end
where name = :name

-- name: own_lane
update {queues} set serial_root = :root where name = :name

-- name: release_lane
update {queues} set serial_root = null where serial_root = :root

-- name: running_in
select count(*) from {jobs} where pool is not null and queue = :queue

-- name: ready_in_tree
-- By parents, of which there is an index: a backlog of others' jobs costs nothing.
select -priority, seq, id, kind, queue, lane from {jobs}
where state = 'pending' and id in (
    with recursive tree (id) as (
        select id from {jobs} where id = :root
        union all
        select j.id from {jobs} j join tree on j.parent_id = tree.id
    )
    select id from tree
)
order by 1, 2, 3 limit :limit

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
                    backoff_base, backoff_cap_s, jitter, root_id, keep_background, batch, labels, created_by, cwd,
                    max_depth, child_mode, joins, on_error, tree_timeout_s)
select :id, queue, kind, task, 'pending', priority, :id, max_attempts, :now, :now, timeout_s,
       backoff_base, backoff_cap_s, jitter, :id, keep_background, batch, labels, created_by, cwd,
       max_depth, child_mode, joins, on_error, tree_timeout_s
from {jobs} where id = :of

-- name: copy_payload
insert into {payloads} (job_id, args) select :id, args from {payloads} where job_id = :of

-- name: id_of_key
select id from {jobs} where key = :key and parent_id is null

-- name: queues_of_ids
select id, queue from {jobs} where id {in_ids:ids}

-- name: ids_of_keys
select key, id from {jobs} where key {in_texts:keys} and parent_id is null

-- name: queues_of_keys
select key, queue from {jobs} where key {in_texts:keys} and parent_id is null

-- name: id_of_unique_key
select id from {jobs} where unique_key = :unique_key

-- ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: row
select id, state, fence, attempts, max_attempts, interruptions, pool, phase, backoff_base, backoff_cap_s, jitter,
       parent_id, root_id, children_total, children_unfinished, children_failed, joins, on_error, queue, key,
       priority, run_at, seq, depth, max_depth, child_no, child_mode, lane
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
    error         = case when :keeps_error then error else :error end,
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
-- All that a turn must know first: its pool, whether the queue has moved, whether something is to be stopped,
-- what is due, whether queues have rules.
select turn_no, stop_requested_at, (select sealed from {meta}),
       exists (select 1 from {jobs} where pool = :pool and pool is not null and state = 'cancelled'),
       (select min(run_at) from {jobs} where state in ('scheduled', 'failed')),
       (select min(tree_deadline_at) from {jobs}
        where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed')),
       exists (select 1 from {queues} where paused_at is not null or serial = 1 or concurrency is not null)
from {pools} where id = :pool

-- name: pools_for_turns
-- The same for several. What concerns all of them is looked up once.
select id, turn_no, stop_requested_at, (select sealed from {meta}),
       exists (select 1 from {jobs} where pool = {pools}.id and pool is not null and state = 'cancelled'),
       (select min(run_at) from {jobs} where state in ('scheduled', 'failed')),
       (select min(tree_deadline_at) from {jobs}
        where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed')),
       exists (select 1 from {queues} where paused_at is not null or serial = 1 or concurrency is not null)
from {pools} where id {in_ids:pools}

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
select pool, id, fence - 1 from {jobs} where pool is not null and state = 'cancelled'

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
delete from {workers} where pool = :pool and not name {in_texts:names}

-- name: set_given_up
update {pools} set given_up = :given_up where id = :pool

-- name: workers_died
-- Their pool was lost, and they with it: nobody else is left to say so.
insert into {events} (at, kind, pool, worker, text)
select :now, 'parent_died', pool, name, :text from {workers} where pool = :pool and state <> 'dead'

-- name: ready_lanes
-- Of these queues, or of all.
with recursive busy (queue) as (
    select min(queue) from {jobs} where state = 'pending' and :queues is null
    union all
    select (select min(queue) from {jobs} where state = 'pending' and queue > busy.queue)
    from busy where busy.queue is not null
), asked (queue) as (
    select queue from busy union all select value from json_each(:queues)
)
select asked.queue, wanted.value from asked, json_each(:kinds) wanted
where exists (select 1 from {jobs} where state = 'pending' and queue = asked.queue and kind = wanted.value)

-- name: ready_counts
-- How many wait in each lane, counted no further than :limit.
with recursive busy (queue) as (
    select min(queue) from {jobs} where state = 'pending'
    union all
    select (select min(queue) from {jobs} where state = 'pending' and queue > busy.queue)
    from busy where busy.queue is not null
)
select busy.queue, wanted.value, (
    select count(*)
    from (select 1 from {jobs} where state = 'pending' and queue = busy.queue and kind = wanted.value limit :limit) as few
)
from busy, json_each(:kinds) wanted where busy.queue is not null

-- name: lane
-- Read from the index alone.
select -priority, seq, id, kind, queue, null from {jobs}
where state = 'pending' and queue = :queue and kind = :kind
order by priority desc, seq, id limit :limit

-- name: free_lane
-- Of a serial queue that belongs to nobody.
select -priority, seq, id, kind, queue, lane from {jobs}
where state = 'pending' and queue = :queue and kind = :kind
order by priority desc, seq, id limit :limit

-- name: owned_lane
-- Of a serial queue that belongs to somebody: the jobs of that tree (lane = its root), or those that may pass (0).
select -priority, seq, id, kind, queue, lane from {jobs}
where state = 'pending' and lane is not null and queue = :queue and lane = :owner and kind = :kind
order by priority desc, seq, id limit :limit

-- name: next_due
select min(run_at) from {jobs} where state in ('scheduled', 'failed')

-- name: instants
-- When something happens by itself: a job's hour, the end of a tree's time.
select (select min(run_at) from {jobs} where state in ('scheduled', 'failed')),
       (select min(tree_deadline_at) from {jobs}
        where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed'))

-- name: undrained
select exists (
    select 1 from {jobs} where state = 'pending' and queue {in_texts:open} and kind {in_texts:kinds}
) or exists (
    select 1 from {jobs} where state in ('scheduled', 'failed') and state = 'failed'
                           and queue {in_texts:open} and kind {in_texts:kinds}
) or exists (
    select 1 from {jobs} where pool is not null and state = 'processing'
                           and queue {in_texts:queues} and kind {in_texts:kinds}
)

-- name: undrained_above
-- A parent of ours that waits for somebody else's running or failed job: its join may still come to us.
with recursive above (id) as (
    select parent_id from {jobs} where pool is not null and state = 'processing' and parent_id is not null
    union
    select parent_id from {jobs} where state in ('scheduled', 'failed') and state = 'failed' and parent_id is not null
    union
    select parent_id from {jobs} join above using (id) where parent_id is not null
)
select exists (
    select 1 from above join {jobs} using (id)
    where state = 'waiting' and queue {in_texts:queues} and kind {in_texts:kinds}
)

-- ── trees ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: insert_in_tree
insert into {jobs} (id, queue, kind, task, state, priority, max_attempts, run_at, created_at, updated_at, timeout_s,
                    backoff_base, backoff_cap_s, jitter, key, unique_key, keep_background, batch, labels, created_by,
                    cwd, joins, on_error, child_mode, tree_timeout_s, tree_deadline_at, parent_id, root_id, seq,
                    child_no, depth, max_depth, lane)
values (:id, :queue, :kind, :task, :state, :priority, :max_attempts, :run_at, :now, :now, :timeout_s,
        :backoff_base, :backoff_cap_s, :jitter, :key, :unique_key, :keep_background, :batch, :labels, :created_by,
        :cwd, :joins, :on_error, :child_mode, :tree_timeout_s, :tree_deadline_at, :parent_id, :root_id, :seq,
        :child_no, :depth, :max_depth, :lane)

-- name: adopt
update {jobs}
set children_total = children_total + :count, children_unfinished = children_unfinished + :count,
    child_mode = coalesce(:mode, child_mode), joins = coalesce(:joins, joins), on_error = coalesce(:on_error, on_error)
where id = :id

-- name: calls_of_children
select j.key, j.task, p.args from {jobs} j left join {payloads} p on p.job_id = j.id
where j.parent_id = :parent and j.key {in_texts:keys}

-- name: call_of
select task, (select args from {payloads} where job_id = :id) from {jobs} where id = :id

-- name: ids_of_unique_keys
select unique_key, id from {jobs} where unique_key {in_texts:keys}

-- name: count_ends
update {jobs}
set children_unfinished = children_unfinished - :ended, children_failed = children_failed + :failed
where id = :id

-- name: recount
update {jobs}
set children_total = (select count(*) from {jobs} c where c.parent_id = :id),
    children_unfinished = (select count(*) from {jobs} c where c.parent_id = :id and c.finished_at is null),
    children_failed = (select count(*) from {jobs} c where c.parent_id = :id and c.state in ('dead', 'cancelled'))
where id = :id

-- name: unfinished_below
-- An ended job has no unfinished descendants, so the search stops there.
with recursive below (id) as (
    select id from {jobs} where parent_id = :parent and child_no > :after and finished_at is null
    union all
    select j.id from {jobs} j join below on j.parent_id = below.id where j.finished_at is null
)
select id from below

-- name: change_many
update {jobs}
set state = :state, fence = fence + :fence, error = :error, unique_key = null, finished_at = :now, updated_at = :now
where id {in_ids:ids} and finished_at is null
returning id, parent_id, child_no

-- name: first_failed
select min(child_no) from {jobs} where parent_id = :parent and state in ('dead', 'cancelled')

-- name: failed_children
select id, state, error from {jobs}
where parent_id = :parent and state in ('dead', 'cancelled') order by child_no limit :limit

-- name: parents_with_failures
select id from {jobs} where id {in_ids:ids} and children_failed > 0

-- name: failed_outcomes
select id, key, task, state, error from {jobs}
where parent_id = :parent and state in ('dead', 'cancelled') order by child_no limit :limit

-- name: next_child
select id from {jobs} where parent_id = :parent and child_no > :after and finished_at is null order by child_no limit 1

-- name: earlier_child
-- One that has ended otherwise than well, if there is any.
select id, finished_at is not null from {jobs}
where parent_id = :parent and child_no < :before and state <> 'completed' order by finished_at is null, child_no limit 1

-- name: unfinished_children
select id from {jobs} where parent_id = :parent and finished_at is null order by child_no limit :limit

-- name: reopenable_children
select id, child_no from {jobs}
where parent_id = :parent and child_no > :after and state in ('dead', 'cancelled') order by child_no limit :limit

-- name: children_there
select count(*) from {jobs} where parent_id = :parent

-- name: infos_below
select parent_id, info, children_info from {jobs}
where parent_id {in_ids:parents} and (info is not null or children_info is not null)

-- name: set_children_info
update {jobs} set children_info = :info where id = :id

-- name: outcomes
select j.id, j.key, j.task, j.state, r.body, j.error
from {jobs} j left join {results} r on r.job_id = j.id
where j.parent_id = :parent order by j.child_no

-- name: held_below
with recursive below (id, pool) as (
    select id, pool from {jobs} where parent_id = :parent
    union all
    select j.id, j.pool from {jobs} j join below on j.parent_id = below.id
)
select id from below where pool is not null limit 1

-- name: held_in_tree
select id from {jobs} where pool is not null and root_id = :root limit 1

-- name: drop_below
with recursive below (id) as (
    select id from {jobs} where parent_id = :parent
    union all
    select j.id from {jobs} j join below on j.parent_id = below.id
)
delete from {jobs} where id in (select id from below)

-- name: drop_children_of
update {jobs} set children_total = 0, children_unfinished = 0, children_failed = 0, children_info = null where id = :id

-- name: remove_result
delete from {results} where job_id = :id

-- name: last_children
select id, pool, exists (select 1 from {jobs} c where c.parent_id = j.id) from {jobs} j
where parent_id = :parent order by child_no desc limit :limit

-- name: relane
update {jobs}
set lane = case (select serial from {queues} where name = {jobs}.queue)
    when 1 then case when parent_id is null or queue = (select r.queue from {jobs} r where r.id = {jobs}.root_id)
                     then root_id else 0 end end
where id {in_ids:ids}

-- name: renew_deadlines
update {jobs} set tree_deadline_at = :now + cast(tree_timeout_s * 1000000 as bigint)
where id {in_ids:ids} and tree_timeout_s is not null

-- name: expired
select id, tree_timeout_s from {jobs}
where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed')
  and tree_deadline_at <= :now
order by tree_deadline_at limit :limit

-- name: live_in_queue
select id from {jobs} where state = 'pending' and queue = :queue
union all
select id from {jobs} where state in ('scheduled', 'failed') and queue = :queue
union all
select id from {jobs} where state in ('waiting', 'blocked') and queue = :queue
union all
select id from {jobs} where pool is not null and queue = :queue

-- name: busy_root
-- The oldest tree of the queue that has begun.
select root_id from {jobs}
where id in (
    select id from {jobs} where pool is not null and queue = :queue
    union all
    select id from {jobs} where state in ('waiting', 'blocked') and state = 'waiting' and queue = :queue
    union all
    select id from {jobs} where state in ('scheduled', 'failed') and state = 'failed' and queue = :queue
) and lane = root_id order by seq, root_id limit 1

-- name: stuck_parents
-- The latest child first: children run in order, so an unfinished one is found at once where there is any.
select w.id from {jobs} w
where w.state in ('waiting', 'blocked') and w.state = 'waiting'
  and (w.children_unfinished <= 0
    or not exists (select 1 from {jobs} c where c.parent_id = w.id and c.finished_at is null order by c.child_no desc))
limit :limit

-- name: add_edge
insert into {edges} (job_id, waits_for, always) values (:job_id, :root, :always)
on conflict (job_id, waits_for) do update set outcome = null, always = max(always, excluded.always)

-- name: lower_seq
update {jobs} set seq = min(seq, :seq) where id = :id

-- name: waited_for
select distinct waits_for from {edges} where waits_for {in_ids:ids}

-- name: close_edges
update {edges} set outcome = :outcome where waits_for = :root and outcome is distinct from 'ok' returning job_id

-- name: reopen_edges
update {edges} set outcome = null where waits_for = :root and outcome is distinct from 'ok'

-- name: edges_of
select outcome, always from {edges} where job_id = :id

-- name: roots_waited_for
select waits_for, outcome from {edges} where job_id = :id order by outcome is not null, waits_for limit :limit

-- name: open_edges
select count(*) from {edges} where job_id = :id and outcome is null

-- name: stranded
-- Uncles that wait for trees of which none is open and none completed, each with a dead one: blocked until somebody acts.
-- The edges are read and not the jobs: there are as many as somebody has asked for by `after`, mostly none.
select e.job_id, min(e.waits_for)
from {edges} e join {jobs} j on j.id = e.job_id
where e.outcome = 'bad' and j.state = 'blocked'
  and not exists (select 1 from {edges} o where o.job_id = e.job_id and o.outcome is null)
group by e.job_id order by e.job_id limit :limit

-- ── requests and tokens ─────────────────────────────────────────────────────────────────────────────────────────

-- name: take_request
-- Whoever asks the same meanwhile waits for our end, where writers run beside each other.
insert into {requests} (id, digest, ids, at) values (:id, :digest, '[]', :now)
on conflict (id) do update set digest = excluded.digest, ids = excluded.ids, at = excluded.at
where {requests}.at < :since
returning id

-- name: request
select digest, ids from {requests} where id = :id

-- name: answer_request
update {requests} set ids = :ids where id = :id

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

-- name: tie
insert into {callers} (job_id, host, boot, pid, ticks, lease_s) values (:job, :host, :boot, :pid, :ticks, :lease_s)

-- name: ties
-- Few, and mostly none at all: it is read twice a second.
select c.job_id, c.host, c.boot, c.pid, c.ticks, c.beat, c.lease_s, j.queue, j.state
from {callers} c left join {jobs} j on j.id = c.job_id order by c.job_id

-- name: beat_tie
update {callers} set beat = beat + 1 where job_id = :job returning job_id

-- name: untie
delete from {callers} where job_id = :job

-- name: cut_tie
-- Unless it has beaten since.
delete from {callers} where job_id = :job and beat = :beat returning host, pid

-- name: prune_requests
delete from {requests} where id in (select id from {requests} where at < :before order by at limit :limit)
returning id

-- name: insert_token
insert into {tokens} (id, name, role, queues, digest, created_at, expires_at)
values (:id, :name, :role, :queues, :digest, :now, :expires_at)

-- name: tokens
select id, name, role, queues, digest, created_at, expires_at, revoked_at from {tokens} order by id

-- name: token
select id, name, role, queues, digest, created_at, expires_at, revoked_at from {tokens} where id = :id

-- name: id_of_token
select id from {tokens} where name = :name

-- name: revoke_token
update {tokens} set revoked_at = :now where id = :id and revoked_at is null returning id

-- ── duties ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: take_duty
-- Further ahead than a period it was put by a clock that is wrong: then it is due. The row `heal` keeps as its cursor when
-- that was noticed last; everybody who takes a duty hears of it.
insert into {duties} (name, next_at) values (:name, :next_at)
on conflict (name) do update
set next_at = excluded.next_at,
    cursor = case when :notes and {duties}.next_at > :late then :now else {duties}.cursor end
where {duties}.next_at <= :now or {duties}.next_at > :late
returning cursor, (select cursor from {duties} noticed where noticed.name = 'heal')

-- name: duty_cursor
select cursor from {duties} where name = :name

-- name: set_duty_cursor
update {duties} set cursor = :cursor, next_at = :next_at where name = :name

-- name: sweep_window
select max(id) from (select id from {jobs} where id > :cursor order by id limit :limit) as page

-- name: prunable
select id, children_total > 0 or lane is not null or exists (select 1 from {edges} where waits_for = {jobs}.id)
from {jobs}
where id > :cursor and id <= :upto and root_id = id
  and ((state = 'completed' and (finished_at < :completed_before or (finished_at > :ahead and :noticed_at < :completed_before)))
    or (state = 'cancelled' and pool is null
        and (finished_at < :cancelled_before or (finished_at > :ahead and :noticed_at < :cancelled_before)))
    or (state = 'dead' and (finished_at < :dead_before or (finished_at > :ahead and :noticed_at < :dead_before))))

-- name: prune_events
delete from {events} where id in (select id from {events} where at < :before order by at limit :limit)

-- name: prune_events_ahead
delete from {events} where id in (select id from {events} where at > :ahead order by at limit :limit)

-- name: prune_requests_ahead
delete from {requests} where id in (select id from {requests} where at > :ahead order by at limit :limit)

-- name: mend_runs
-- A back-off or a snooze that was counted from an instant ahead is counted from now. `updated_at` is that instant; what a
-- person has chosen (a job that never ran, an edit) stays.
update {jobs} set run_at = :now + run_at - updated_at, updated_at = :now
where id in (
    select id from {jobs} j
    where state in ('scheduled', 'failed') and (state = 'failed' or fence > 0) and run_at > :now and updated_at > :ahead
      and not exists (select 1 from {events} where job_id = j.id and kind = 'edited')
    limit :limit
)
returning id

-- name: expired_ahead
-- Counted from an instant ahead, although nothing was to begin then; and as long as the tree may take has passed since.
select id, tree_timeout_s from {jobs}
where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed')
  and tree_deadline_at > :ahead and tree_deadline_at - cast(tree_timeout_s * 1000000 as bigint) > :ahead
  and coalesce(run_at < tree_deadline_at - cast(tree_timeout_s * 1000000 as bigint), true)
  and :noticed_at + cast(tree_timeout_s * 1000000 as bigint) <= :now
order by tree_deadline_at limit :limit

-- name: pauses_ahead
-- Begun at an instant ahead, and as long as they were to last has passed since that was noticed.
select name from {queues} where paused_at > :ahead and :noticed_at + resume_at - paused_at <= :now

-- name: missed_ahead
-- Of those two, and of requests, what should have been over before: it began after that was noticed.
select 1 from {queues} where paused_at > :ahead and :noticed_at + resume_at - paused_at <= :before
union all
select 1 where exists (
    select 1 from {jobs}
    where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed')
      and tree_deadline_at > :ahead
      and tree_deadline_at - cast(tree_timeout_s * 1000000 as bigint) > :ahead
      and coalesce(run_at < tree_deadline_at - cast(tree_timeout_s * 1000000 as bigint), true)
      and :noticed_at + cast(tree_timeout_s * 1000000 as bigint) <= :before)
union all
select 1 where cast(:noticed_at as bigint) + :kept <= :before and exists (select 1 from {requests} where at > :ahead)
limit 1

-- name: ahead
-- What lies ahead of a clock: a few rows, or the end of an index.
select 'duty' as what, name, next_at as at from {duties} where next_at > :late and name <> 'copy'
union all
select 'pause', name, paused_at from {queues} where paused_at > :ahead
union all
select 'pool', cast(id as text), beat_at from {pools} where beat_at > :ahead
union all
select 'token', name, created_at from {tokens} where created_at > :ahead and expires_at is not null and revoked_at is null
union all
select 'job', cast(id as text), created_at
from (select id, created_at from {jobs} order by id desc limit 1) as newest where created_at > :ahead
union all
select 'events', null, at from (select max(at) as at from {events}) as latest where at > :ahead
union all
select 'requests', null, at from (select max(at) as at from {requests}) as latest where at > :ahead

-- ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- name: view
select j.id, j.key, j.queue, j.task, p.args, j.state, j.phase, j.priority, j.attempts, j.max_attempts, j.run_at,
       j.created_at, j.updated_at, j.started_at, j.finished_at, j.timeout_s, j.cwd, j.pool, j.worker, o.name, o.beat_at,
       o.lease_s, j.exit_code, j.error, r.body, j.parent_id, j.root_id, j.children_total, j.children_unfinished,
       j.children_failed, j.batch, j.labels, j.interruptions, j.info, j.kind, j.fence, w.name, w.busy_since,
       j.depth, j.child_no, j.children_info, o.host
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

-- name: attempts_of
select number, fence, outcome, worker, pool, started_at, finished_at, exit_code, error, detail, stdout, stderr,
       stdout_dropped, stderr_dropped
from {attempts} where job_id = :id order by fence

-- name: states_of
select id, state from {jobs} where id {in_ids:ids}

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
) as ahead

-- name: place
select priority, seq from {jobs} where id = :id

-- name: place_in_lane
select j.lane, q.serial_root, (select count(*) from {jobs} r where r.pool is not null and r.queue = j.queue)
from {jobs} j join {queues} q on q.name = j.queue where j.id = :id

-- name: orphans
select count(*) from {jobs} where pool is not null and pool not in (select id from {pools})
