-- The whole schema. Times are integer microseconds UTC, durations are seconds, JSON is text.

create table meta (
    only        integer primary key check (only = 1),
    database_id text    not null,
    schema      integer not null,
    sealed      text,                     -- the URL that took over, once the queue has moved
    created_at  integer not null
) strict;

create table config (
    key   text primary key,
    value text not null
) strict, without rowid;

create table queues (
    name         text primary key,
    serial       integer not null default 0 check (serial in (0, 1)),
    concurrency  integer check (concurrency > 0),
    max_depth    integer not null default 1 check (max_depth >= 0),
    paused_at    integer,
    resume_at    integer,                 -- a pause that forgets itself
    serial_root  integer,                 -- the root that owns the lane of a serial queue, until its tree is over
    created_at   integer not null
) strict, without rowid;

-- Hot rows stay small: what only a reader needs lives in payloads, results and attempts.
create table jobs (
    id                  integer primary key autoincrement,   -- plain rowids are reused: a stale result would find a stranger
    queue               text    not null,
    kind                text    not null check (kind in ('command', 'sync', 'async')),
    task                text    not null,
    state               text    not null,
    phase               text    not null default 'run' check (phase in ('run', 'join')),
    priority            integer not null default 0,
    seq                 integer not null,                    -- the root's id: older trees first
    fence               integer not null default 0 check (fence >= 0),
    attempts            integer not null default 0 check (attempts >= 0),
    max_attempts        integer not null check (max_attempts > 0),
    interruptions       integer not null default 0,
    pool                integer,                             -- no foreign key: a pool's row may be gone while its jobs still wait to be handed back
    run_at              integer,
    created_at          integer not null,
    updated_at          integer not null,
    claimed_at          integer,
    started_at          integer,
    finished_at         integer,
    timeout_s           real check (timeout_s > 0),
    backoff_base        real    not null default 2,
    backoff_cap_s       real    not null default 300,
    jitter              integer not null default 0 check (jitter in (0, 1)),
    key                 text,
    unique_key          text,
    root_id             integer not null,
    parent_id           integer references jobs (id),
    child_no            integer,
    depth               integer not null default 0,
    max_depth           integer not null default 1,          -- the root queue's, the same in the whole tree
    lane                integer,                             -- in a serial queue: the root that must own it, 0 = may pass
    child_mode          text check (child_mode in ('concurrent', 'serial')),
    joins               integer not null default 0 check (joins in (0, 1)),
    on_error            text check (on_error in ('wait', 'cancel', 'collect')),
    children_total      integer not null default 0,
    children_unfinished integer not null default 0,
    children_failed     integer not null default 0,
    children_info       text,                                -- the children's numbers, added up when the last one ended
    tree_timeout_s      real check (tree_timeout_s > 0),
    tree_deadline_at    integer,
    keep_background     integer not null default 0 check (keep_background in (0, 1)),
    batch               text,
    labels              text,
    info                text,
    created_by          text,
    cwd                 text,
    worker              text,
    exit_code           integer,
    error               text,
    -- One check, the busiest states first: five separate ones cost two microseconds an update (measured).
    check (case state
        when 'pending'    then pool is null and finished_at is null
        when 'processing' then pool is not null and finished_at is null
        when 'completed'  then pool is null and finished_at is not null
        when 'scheduled'  then pool is null and finished_at is null and run_at is not null
        when 'failed'     then pool is null and finished_at is null and run_at is not null
        when 'blocked'    then pool is null and finished_at is null
        when 'waiting'    then pool is null and finished_at is null
        when 'dead'       then pool is null and finished_at is not null
        when 'cancelled'  then finished_at is not null           -- pool stays until its processes are gone
        else 0
    end)
) strict;

-- Live rows only, so that history costs a claim nothing.
create index jobs_ready on jobs (queue, kind, priority desc, seq, id) where state = 'pending';
create index jobs_due   on jobs (run_at) where state in ('scheduled', 'failed');
create index jobs_held  on jobs (pool) where pool is not null;
create index jobs_lane  on jobs (queue, lane, kind, priority desc, seq, id) where state = 'pending' and lane is not null;
create index jobs_still on jobs (queue, id) where state in ('waiting', 'blocked');
create index jobs_deadline on jobs (tree_deadline_at)
    where tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed');
create index jobs_buried on jobs (id) where state = 'dead';
create index jobs_children on jobs (parent_id, child_no) where parent_id is not null;
create index jobs_batch on jobs (batch, id) where batch is not null;
create unique index jobs_key on jobs (key) where key is not null and parent_id is null;
create unique index jobs_child_key on jobs (parent_id, key) where key is not null and parent_id is not null;
create unique index jobs_unique_key on jobs (unique_key) where unique_key is not null;

create table payloads (
    job_id integer primary key references jobs (id) on delete cascade,
    args   text not null
) strict;

create table results (
    job_id integer primary key references jobs (id) on delete cascade,
    body   text not null
) strict;

-- One row per attempt that has something to say: a failure, output, an interruption.
create table attempts (
    job_id         integer not null references jobs (id) on delete cascade,
    fence          integer not null,
    number         integer not null,
    phase          text    not null default 'run',
    outcome        text    not null,
    worker         text,
    pool           integer,
    started_at     integer,
    finished_at    integer not null,
    exit_code      integer,
    error          text,
    detail         text,                                     -- traceback or the like
    stdout         blob,
    stderr         blob,
    stdout_dropped integer not null default 0,
    stderr_dropped integer not null default 0,
    primary key (job_id, fence)
) strict, without rowid;

create table edges (
    job_id    integer not null references jobs (id) on delete cascade,
    waits_for integer not null,
    outcome   text check (outcome in ('ok', 'bad', 'gone')), -- null while open; bad: dead; gone: cancelled or removed
    always    integer not null default 0 check (always in (0, 1)),
    primary key (job_id, waits_for)
) strict, without rowid;
create index edges_waits_for on edges (waits_for);

create table pools (
    id                integer primary key autoincrement,
    name              text    not null,
    host              text    not null,
    boot              text    not null,                      -- boot id and pid namespace: where `pid` means something
    pid               integer not null,
    ticks             integer not null,
    zygote_pid        integer,
    zygote_ticks      integer,
    queues            text,                                  -- JSON list, null = every queue
    kinds             text    not null,
    count             integer not null,
    types             text,                                  -- JSON, worker type → count
    app               text,
    log               text,                                  -- its log file, on its host
    cgroup            text,                                  -- holds its processes, on its host
    given_up          text,                                  -- JSON, what cannot start → why
    version           text    not null,
    lease_s           real    not null,
    turn_no           integer not null default 0,
    beat              integer not null default 0,
    beat_at           integer not null,
    registered_at     integer not null,
    stop_requested_at integer,
    draining_at       integer
) strict;

create table workers (
    pool       integer not null references pools (id) on delete cascade,
    name       text    not null,
    pid        integer,
    ticks      integer,
    kind       text    not null,
    queue      text,
    state      text    not null check (state in ('starting', 'idle', 'busy', 'stopping', 'dead')),
    job_id     integer,
    fence      integer,
    busy_since integer,
    done       integer not null default 0,
    failed     integer not null default 0,
    memory     integer,
    started_at integer not null,
    error      text,
    primary key (pool, name)
) strict, without rowid;

create table events (
    id     integer primary key autoincrement,
    at     integer not null,
    kind   text    not null,
    job_id integer,
    pool   integer,
    worker text,
    text   text
) strict;
create index events_job on events (job_id, id) where job_id is not null;
create index events_at on events (at);
create index events_pool on events (id) where pool is not null and job_id is null;

-- One pool per period wins the row; `cursor` is where a bounded sweep goes on.
create table duties (
    name    text primary key,
    next_at integer not null,
    cursor  integer not null default 0
) strict, without rowid;
