-- Queues: their rules, pauses, lanes.

-- name: add_queue
insert into {queues} (name, created_at) values (:name, :now) on conflict do nothing

-- name: queues
select name, paused_at, resume_at, serial, concurrency, max_depth from {queues} order by name

-- name: special_queues
-- What an enqueue must know, in one look: the seal, the queues with rules for new jobs (usually none), and what is
-- configured (usually nothing), which has no depth.
select q.name, q.serial, q.max_depth, m.sealed from {meta} m left join {queues} q on q.serial = 1 or q.max_depth <> 1
union all
select key, null, null, value from {config}

-- name: queue_rules
-- Only queues whose jobs may not simply be claimed: usually none.
select name, {is_paused}, serial, serial_root, concurrency from {queues} where {has_rules}

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

-- name: paused_queues
select name from {queues} where {is_paused}

-- name: pause_queue
update {queues} set paused_at = :now, resume_at = :resume_at where name = :name

-- name: resume_queue
update {queues} set paused_at = null, resume_at = null where name = :name

-- name: overdue_pauses
select name from {queues} where paused_at is not null and resume_at <= :now

-- name: live_in_queue
select id from {jobs} where state = 'pending' and queue = :queue
union all
select id from {jobs} where {waits_for_its_hour} and queue = :queue
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
    select id from {jobs} where {waits_for_its_hour} and state = 'failed' and queue = :queue
) and lane = root_id order by seq, root_id limit 1
