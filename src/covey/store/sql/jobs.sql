-- Jobs as rows: in, changed, out.

-- name: insert_job
insert into {jobs} ({names:place}, tree_deadline_at, created_at, updated_at, kind, task, joins, created_by, {names:options})
values ({values:place}, :tree_deadline_at, :now, :now, :kind, :task, :joins, :created_by, {values:options})

-- name: insert_payload
insert into {payloads} (job_id, args) values (:id, :args)

-- name: insert_copy
insert into {jobs} (id, root_id, seq, state, created_at, updated_at, max_depth, kind, task, joins, created_by, {names:copied})
select :id, :id, :id, 'pending', :now, :now, max_depth, kind, task, joins, created_by, {names:copied}
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

-- name: row
select {row} from {jobs} where id = :id

-- name: rows
select {row} from {jobs} where id {in_ids:ids}

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
    blocked_by    = :blocked_by,
    unique_key    = case when :finished_at is null then unique_key end,
    updated_at    = :now
where id = :id and state = :was and fence = :expected

-- name: edit_job
update {jobs}
set priority = coalesce(:priority, priority),
    queue = coalesce(:queue, queue),
    max_attempts = coalesce(:max_attempts, max_attempts),
    state = :state,
    run_at = :run_at,
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

-- name: states_of
select id, state from {jobs} where id {in_ids:ids}
