-- For those who come over HTTP: who they are, and which of their enqueues were answered already.

create table tokens (
    id         integer primary key autoincrement,
    name       text    not null unique,  -- of a revoked one too: what was logged under a name stays unambiguous
    role       text    not null check (role in ('read', 'client', 'worker', 'admin')),
    queues     text,  -- JSON list, null = every queue
    digest     text    not null,  -- of the secret, which is stored nowhere
    created_at integer not null,
    expires_at integer,
    revoked_at integer
) strict;

-- An enqueue that is sent a second time, because its answer was lost, is answered from here. Kept for an hour.
create table requests (
    id     text primary key,
    digest text    not null,  -- of what was asked
    ids    text    not null,  -- JSON, [[job id, whether it was there before], …]
    at     integer not null
) strict;
create index requests_at on requests (at);

-- What a run that is lent over HTTP has asked for so far: it comes into being with the run's success, and only then.
create table staged (
    job_id integer not null references jobs (id) on delete cascade,
    fence  integer not null,
    no     integer not null,
    spawn  text    not null,  -- JSON
    primary key (job_id, fence, no)
) strict, without rowid;
