-- The queue as a whole: settings, requests, tokens, callers, duties, a copy that is under way.

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
select id, {has_kin} from {jobs}
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
    where {waits_for_its_hour} and (state = 'failed' or fence > 0) and run_at > :now and updated_at > :ahead
      and not exists (select 1 from {events} where job_id = j.id and kind = 'edited')
    limit :limit
)
returning id

-- name: expired_ahead
-- Counted from an instant ahead, although nothing was to begin then; and as long as the tree may take has passed since.
select id, tree_timeout_s from {jobs}
where {has_deadline}
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
    where {has_deadline}
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
