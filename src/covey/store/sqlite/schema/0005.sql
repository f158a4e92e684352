-- Counts that are not counted (decision 41). A job that comes and goes its plain way costs nothing for them.

-- Jobs that rest or have ended badly, by queue and state; pending and completed ones are not in it.
create index jobs_resting on jobs (queue, state)
    where state in ('scheduled', 'failed', 'waiting', 'blocked', 'dead', 'cancelled');

-- Of each queue: how many rows there are up to the id that the duty `count` has come to, and how many ended ones were
-- removed ever. What is completed is the rest: rows less those that an index counts.
create table counted (
    queue     text primary key,
    jobs      integer not null default 0,
    completed integer not null default 0,   -- removed since
    dead      integer not null default 0,
    cancelled integer not null default 0
) strict, without rowid;

-- As it was at the end of a minute: all that ever completed, died, was cancelled; how many waited and ran.
create table samples (
    minute    integer not null,
    queue     text    not null,
    completed integer not null,
    dead      integer not null,
    cancelled integer not null,
    waiting   integer not null,
    running   integer not null,
    primary key (minute, queue)
) strict, without rowid;

insert into counted (queue, jobs) select queue, count(*) from jobs group by queue;
insert into duties (name, next_at, cursor) values ('count', 0, coalesce((select max(id) from jobs), 0));

-- Here and not in each verb that removes: none can be forgotten, and hot statements neither delete nor name a queue.
create trigger job_removed after delete on jobs begin
    insert into counted (queue, jobs, completed, dead, cancelled)
    values (old.queue, case when old.id <= (select cursor from duties where name = 'count') then -1 else 0 end,
            old.state = 'completed', old.state = 'dead', old.state = 'cancelled')
    on conflict (queue) do update set jobs = jobs + excluded.jobs, completed = completed + excluded.completed,
        dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled;
end;
create trigger job_moved after update of queue on jobs
when old.queue <> new.queue and old.id <= (select cursor from duties where name = 'count') begin
    insert into counted (queue, jobs) values (old.queue, -1) on conflict (queue) do update set jobs = jobs - 1;
    insert into counted (queue, jobs) values (new.queue, 1) on conflict (queue) do update set jobs = jobs + 1;
end;
