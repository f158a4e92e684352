-- What waits for a pool, and when there will be more.

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

-- name: instants
select {instants}

-- name: undrained
select exists (
    select 1 from {jobs} where state = 'pending' and queue {in_texts:open} and kind {in_texts:kinds}
) or exists (
    select 1 from {jobs} where {waits_for_its_hour} and state = 'failed'
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
    select parent_id from {jobs} where {waits_for_its_hour} and state = 'failed' and parent_id is not null
    union
    select parent_id from {jobs} join above using (id) where parent_id is not null
)
select exists (
    select 1 from above join {jobs} using (id)
    where state = 'waiting' and queue {in_texts:queues} and kind {in_texts:kinds}
)
