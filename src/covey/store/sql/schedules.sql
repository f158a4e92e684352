-- name: insert_schedule
insert into {schedules} (name, source, app, digest, spec, job, queue, catch_up, most, window_s, overlap, jitter_s, starts_at,
                         ends_at, pause_after, next_at, fire_at, created_at, created_by, updated_at)
values (:name, :source, :app, :digest, :spec, :job, :queue, :catch_up, :most, :window_s, :overlap, :jitter_s, :starts_at,
        :ends_at, :pause_after, :next_at, :fire_at, :now, :by, :now)

-- name: define_schedule
update {schedules}
set digest = :digest, version = version + 1, spec = :spec, job = :job, queue = :queue, catch_up = :catch_up, most = :most,
    window_s = :window_s, overlap = :overlap, jitter_s = :jitter_s, starts_at = :starts_at, ends_at = :ends_at,
    pause_after = :pause_after, next_at = :next_at, fire_at = :fire_at, skipped = 0, errors = 0, retired_at = null,
    updated_at = :now
where id = :id and version = :version

-- name: move_schedule
-- Paused, resumed, retired: when it is due next, and why not.
update {schedules}
set next_at = :next_at, fire_at = :fire_at, paused_at = :paused_at, paused_by = :paused_by, pause_note = :pause_note,
    resume_at = :resume_at, retired_at = :retired_at, errors = 0, updated_at = :now
where id = :id and version = :version

-- name: remove_schedule
delete from {schedules} where id = :id

-- name: schedule
select {schedule} from {schedules} where name = :name

-- name: lock_schedule
select id from {schedules} where name = :name

-- name: schedules
select {schedule} from {schedules} where name > :after order by name limit :limit

-- name: due_schedules
select {schedule} from {schedules} where fire_at is not null and fire_at <= :now order by fire_at limit :limit

-- name: open_runs
-- Jobs of earlier ticks that may still be there, and whether a process of theirs is.
select t.schedule_id, t.tick, t.job_id, j.state, j.id is not null and exists (
    select 1 from {jobs} p where p.root_id = j.id and p.pool is not null)
from {ticks} t left join {jobs} j on j.id = t.job_id
where t.open = 1 and t.schedule_id {in_ids:ids}

-- name: close_ticks
update {ticks} set open = 0 where schedule_id = :id and tick = :tick

-- name: insert_tick
insert into {ticks} (schedule_id, tick, at, decision, until, job_id, open, note)
values (:id, :tick, :at, :decision, :until, :job_id, :open, :note)

-- name: decide_tick_anew
-- A backfill: what was left out has a job after all.
update {ticks} set at = :at, decision = :decision, until = null, job_id = :job_id, open = :open, note = :note
where schedule_id = :id and tick = :tick and job_id is null

-- name: fired_schedule
-- Only as it was seen: an edit or a pause meanwhile wins.
update {schedules}
set next_at = :next_at, fire_at = :fire_at, last_tick = coalesce(:last_tick, last_tick), last_job = coalesce(:last_job, last_job),
    last_success = coalesce(:last_success, last_success), missed = missed + :missed,
    skipped = case when :fired = 1 then 0 else skipped end + :skipped, errors = :errors, paused_at = :paused_at,
    paused_by = :paused_by, pause_note = :pause_note, resume_at = :resume_at
where id = :id and version = :version and next_at = :seen

-- name: ran_schedule
update {schedules} set last_job = :last_job, last_success = coalesce(:last_success, last_success) where id = :id

-- name: ticks
select {tick} from {ticks} t left join {jobs} j on j.id = t.job_id
where t.schedule_id = :id and t.tick < :before order by t.tick desc limit :limit

-- name: tick
select {tick} from {ticks} t left join {jobs} j on j.id = t.job_id where t.schedule_id = :id and t.tick = :tick

-- name: last_runs
select t.schedule_id, t.tick, t.job_id, j.state, j.finished_at
from {ticks} t left join {jobs} j on j.id = t.job_id
where t.job_id in (select last_job from {schedules} where id {in_ids:ids})

-- name: jobs_of_schedule
select j.id from {ticks} t join {jobs} j on j.id = t.job_id where t.schedule_id = :id and j.finished_at is null order by j.id

-- name: schedules_of_app
select {schedule} from {schedules} where app = :app order by name

-- name: forgettable
-- Ticks behind the newest hundred of their schedule, without a job that is there.
select t.schedule_id, t.tick from {ticks} t
where t.schedule_id > :after and t.schedule_id <= :upto
  and t.tick < (select n.tick from {ticks} n where n.schedule_id = t.schedule_id order by n.tick desc limit 1 offset 99)
  and (t.job_id is null or not exists (select 1 from {jobs} j where j.id = t.job_id))
order by t.schedule_id, t.tick limit :limit

-- name: forget_tick
delete from {ticks} where schedule_id = :id and tick = :tick

-- name: forgotten_to
update {schedules} set forgotten_to = case when forgotten_to > :tick then forgotten_to else :tick end where id = :id

-- name: schedule_ids
select id from {schedules} where id > :after order by id limit :limit

-- name: declare
insert into {declarations} (pool, app, definitions, queues) values (:pool, :app, :definitions, :queues)

-- name: declarations
select pool, definitions, queues from {declarations} where app = :app order by pool desc

-- name: declares
select app from {declarations} where pool = :pool

-- name: ill_schedules
-- Due for a while, paused by themselves, or skipping again and again.
select name, fire_at, pause_note, skipped, errors from {schedules}
where retired_at is null and (fire_at < :late or paused_by = 'covey' or errors > 0 or skipped >= :skipped)
order by name limit :limit
