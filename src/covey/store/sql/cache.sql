-- The result cache: keys of jobs, records, flights and who follows them.

-- name: set_cache_key
update {jobs} set cache_key = :key where id = :id

-- name: set_cache_parts
update {payloads} set cache_parts = :parts, cache_refresh = :refresh where job_id = :id

-- name: complete_new
-- A job that was inserted just now has completed at once. The rule is `hit` of core/machine.
update {jobs}
set state = 'completed', finished_at = :now, unique_key = null, cache_key = :key, cached_from = :from_job, info = :info,
    exit_code = :exit_code
where id = :id

-- name: copy_cache_parts
-- A job that hit has none of its own; then those of the record.
update {payloads}
set cache_refresh = 1,
    cache_parts = coalesce((select p.cache_parts from {payloads} p where p.job_id = :of),
                           (select r.parts from {cache_records} r where r.key = :key))
where job_id = :id

-- name: replay_result
insert into {results} (job_id, body) select :id, result from {cache_records} where key = :key and result is not null
on conflict (job_id) do update set body = excluded.body

-- name: replay_output
-- As a row of history that was no attempt.
insert into {attempts} (job_id, fence, number, phase, outcome, finished_at, exit_code, stdout, stderr, stdout_dropped,
                        stderr_dropped)
select :id, (select fence from {jobs} where id = :id), 0, 'run', 'cached', :now, exit_code, stdout, stderr, stdout_dropped, stderr_dropped
from {cache_records} where key = :key and (stdout is not null or stderr is not null)
on conflict do nothing

-- name: set_cached_from
update {jobs}
set cached_from = r.job_id, info = r.info, exit_code = r.exit_code
from {cache_records} r where {jobs}.id = :id and r.key = {jobs}.cache_key

-- name: note_use
-- Once a day is enough to know what is in use: a hit writes nothing else about its record.
update {cache_records} set used_at = :now where key = :key and used_at < :before

-- name: records_there
select key, result is not null, stdout is not null or stderr is not null, used_at < :before, outputs, job_id, info,
       exit_code from {cache_records} where key {in_texts:keys}

-- name: cached_calls
-- What was asked for, of jobs that have a key.
select j.id, j.cache_key, j.queue, j.task, p.args, p.cache_parts, coalesce(p.cache_refresh, 0)
from {jobs} j left join {payloads} p on p.job_id = j.id
where j.id {in_ids:ids} and j.cache_key is not null

-- name: keep_record
insert into {cache_records} (key, queue, task, parts, result, info, exit_code, stdout, stderr, stdout_dropped,
                             stderr_dropped, outputs, job_id, took_us, size, created_at, used_at)
values (:key, :queue, :task, :parts, :result, :info, :exit_code, :stdout, :stderr, :stdout_dropped, :stderr_dropped,
        :outputs, :job_id, :took_us, :size, :now, :now)
on conflict (key) do nothing

-- name: drop_record
delete from {cache_records} where key = :key

-- name: drop_record_of
-- The record that this job has made.
delete from {cache_records} where job_id = :id and key = (select cache_key from {jobs} where id = :id)

-- name: record
select key, queue, task, parts, job_id, took_us, size, created_at, used_at, outputs from {cache_records} where key = :key

-- name: records_like
-- The newest ones of a task.
select key, parts, job_id, created_at from {cache_records} where task = :task and queue = :queue
order by created_at desc, key limit :limit

-- name: take_flight
-- It is ours if nobody has it, if it waits for whoever comes first, or if its run is over.
insert into {flights} (key, job_id, fence) values (:key, :job_id, :fence)
on conflict (key) do update set job_id = excluded.job_id, fence = excluded.fence
where {flights}.fence is null
   or not exists (select 1 from {jobs} j
                  where j.id = {flights}.job_id and j.state = 'processing' and j.fence = {flights}.fence)
returning key

-- name: ended_flights
-- Of these. A job that moved into another queue has another key.
select f.key from {flights} f left join {jobs} j on j.id = f.job_id and j.cache_key = f.key
where f.key {in_texts:keys}
  and not coalesce((j.state = 'processing' and j.fence = f.fence) or (j.state = 'pending' and f.fence is null), false)

-- name: end_flight
delete from {flights} where key = :key

-- name: end_flights
delete from {flights} where key {in_texts:keys}

-- name: followed
select distinct key from {followers} where key {in_texts:keys}

-- name: reserve_flight
insert into {flights} (key, job_id) values (:key, :job_id)
on conflict (key) do update set job_id = excluded.job_id, fence = null

-- name: stale_flights
-- Keys whose flight is none any more, and keys with followers and no flight.
select f.key from {flights} f left join {jobs} j on j.id = f.job_id and j.cache_key = f.key
where not coalesce((j.state = 'processing' and j.fence = f.fence) or (j.state = 'pending' and f.fence is null), false)
union
select key from {followers} where key not in (select key from {flights})
limit :limit

-- name: follow
insert into {followers} (job_id, key) values (:job_id, :key) on conflict (job_id) do update set key = excluded.key

-- name: unfollow
delete from {followers} where job_id {in_ids:ids}

-- name: followers_of
-- In the order in which they would be claimed.
select f.job_id from {followers} f join {jobs} j on j.id = f.job_id
where f.key = :key and j.state = 'blocked'
  and not exists (select 1 from {edges} e where e.job_id = j.id and e.outcome is null)
order by j.priority desc, j.seq, j.id limit :limit

-- name: flight_followed
select f.job_id from {followers} w join {flights} f on f.key = w.key where w.job_id = :id

-- name: cache_counts
select count(*), cast(coalesce(sum(size), 0) as bigint), min(created_at), min(used_at) from {cache_records}

-- name: cache_hits
-- Of the jobs that are still known.
select count(*), cast(coalesce(sum(r.took_us), 0) as bigint)
from {jobs} j left join {cache_records} r on r.key = j.cache_key
where j.cache_key is not null and j.cached_from is not null and (:queue is null or j.queue = :queue)

-- name: cache_misses
select count(*) from {jobs}
where cache_key is not null and state = 'completed' and cached_from is null and (:queue is null or queue = :queue)

-- name: least_used
select key, size from {cache_records} where used_at < :before order by used_at, key limit :limit

-- name: drop_records
delete from {cache_records} where key {in_texts:keys}
