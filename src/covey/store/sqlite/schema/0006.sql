-- Schedules, and what was decided of each of their ticks.

create table schedules (
    id           integer primary key autoincrement,
    name         text    not null unique,
    source       text    not null check (source in ('code', 'api')),
    app          text,                                       -- declared in code: whose
    digest       text    not null,                           -- of all that was said of it
    version      integer not null default 1,
    spec         text    not null,                           -- JSON: when
    job          text    not null,                           -- JSON: as `enqueue` takes it
    queue        text    not null,                           -- of the job
    catch_up     text    not null check (catch_up in ('one', 'skip', 'all')),
    most         integer not null,
    window_s     real    not null,
    overlap      text    not null check (overlap in ('skip', 'allow', 'queue', 'cancel')),
    jitter_s     real    not null,
    starts_at    integer,
    ends_at      integer,
    pause_after  integer,
    next_at      integer,                                    -- the first tick that is not decided
    fire_at      integer,                                    -- when it is, with its jitter; null: not by itself
    last_tick    integer,
    last_job     integer,
    last_success integer,                                    -- the last tick whose job is known to have completed
    missed       integer not null default 0,
    skipped      integer not null default 0,                 -- in a row
    errors       integer not null default 0,                 -- in a row: it could not be decided at all
    forgotten_to integer,                                    -- ticks up to this one are not remembered one by one
    paused_at    integer,
    paused_by    text,
    pause_note   text,
    resume_at    integer,
    retired_at   integer,
    created_at   integer not null,
    created_by   text,
    updated_at   integer not null,
    check (fire_at is null or next_at is not null)
) strict;
create index schedules_due on schedules (fire_at) where fire_at is not null;
create index schedules_of_app on schedules (app) where app is not null;

create table ticks (
    schedule_id integer not null references schedules (id) on delete cascade,
    tick        integer not null,
    at          integer not null,                            -- when it was decided
    decision    text    not null check (decision in ('fired', 'manual', 'skipped', 'missed', 'refused')),
    until       integer,                                     -- missed: and all others before this instant
    job_id      integer,
    open        integer not null default 0 check (open in (0, 1)),  -- its job may be there and may run (again)
    note        text,
    primary key (schedule_id, tick),
    check ((decision in ('fired', 'manual')) = (job_id is not null))
) strict, without rowid;
create index ticks_open on ticks (schedule_id, tick) where open = 1;
create index ticks_job on ticks (job_id) where job_id is not null;

-- Schedules that the app of a pool declares: JSON, a list. Beside its row, which is written with every turn.
create table declarations (
    pool        integer primary key references pools (id) on delete cascade,
    app         text not null,
    definitions text not null,
    queues      text  -- JSON list: its token's, null = every queue
) strict;
create index declarations_of_app on declarations (app);

alter table pools add column zones text;  -- the release of its time zones
