-- Counts that are not counted (decision 41). As for SQLite, but that `counted` has many rows for a queue, which are added up
-- when they are read: who removes only appends, and waits for nobody.
create index jobs_resting on {jobs} (queue, state)
    where state in ('scheduled', 'failed', 'waiting', 'blocked', 'dead', 'cancelled');

create table {counted} (
    queue     text collate "C" not null,
    jobs      bigint not null default 0,
    completed bigint not null default 0,
    dead      bigint not null default 0,
    cancelled bigint not null default 0
);

create table {samples} (
    minute    bigint not null,
    queue     text collate "C" not null,
    completed bigint not null,
    dead      bigint not null,
    cancelled bigint not null,
    waiting   bigint not null,
    running   bigint not null,
    primary key (minute, queue)
);

insert into {duties} (name, next_at, cursor) values ('count', 0, 0);

create function {job_removed}() returns trigger language plpgsql as $$
begin
    insert into {counted} (queue, jobs, completed, dead, cancelled)
    select queue, -count(*) filter (where id <= (select cursor from {duties} where name = 'count')),
           count(*) filter (where state = 'completed'), count(*) filter (where state = 'dead'),
           count(*) filter (where state = 'cancelled')
    from gone group by queue;
    return null;
end $$;
create trigger job_removed after delete on {jobs} referencing old table as gone
    for each statement execute function {job_removed}();

create function {job_moved}() returns trigger language plpgsql as $$
begin
    if old.queue <> new.queue and old.id <= (select cursor from {duties} where name = 'count') then
        insert into {counted} (queue, jobs) values (old.queue, -1), (new.queue, 1);
    end if;
    return null;
end $$;
create trigger job_moved after update of queue on {jobs} for each row execute function {job_moved}();
