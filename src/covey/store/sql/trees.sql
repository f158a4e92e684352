-- Families: children, ends that are counted, who waits for whom.

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
set state = :state, fence = fence + :fence, error = :error, blocked_by = 0, unique_key = null, finished_at = :now,
    updated_at = :now
where id {in_ids:ids} and finished_at is null
returning id, parent_id, child_no, cache_key

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
where {has_deadline}
  and tree_deadline_at <= :now
order by tree_deadline_at limit :limit

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
