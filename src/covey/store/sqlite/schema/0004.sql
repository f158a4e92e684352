-- The result cache. A job that asks for none has nothing of it but two nulls.
alter table jobs add column cache_key text;           -- the key of what was asked for
alter table jobs add column cached_from integer;      -- it did not run: this job's run has made its result
create index jobs_cache_key on jobs (cache_key) where cache_key is not null;

alter table payloads add column cache_parts text;     -- what the key was made of
alter table payloads add column cache_refresh integer not null default 0 check (cache_refresh in (0, 1));

-- What runs have made, by what they depended on. Written with a success that was fenced, by nobody else.
create table cache_records (
    key            text primary key,
    queue          text    not null,
    task           text    not null,
    parts          text    not null,
    result         text,
    info           text,
    exit_code      integer,
    stdout         blob,
    stderr         blob,
    stdout_dropped integer not null default 0,
    stderr_dropped integer not null default 0,
    outputs        text,                              -- JSON, files that the run has made: path, form, digest, size
    job_id         integer not null,                  -- whose run it was; it may be gone
    took_us        integer not null default 0,
    size           integer not null,                  -- bytes of all that is kept, files included
    created_at     integer not null,
    used_at        integer not null                   -- to the day
) strict;
create index cache_records_used on cache_records (used_at, size);
create index cache_records_task on cache_records (task, queue, created_at);

-- Keys under way. With a fence: that run of the job. Without: the job is pending and the next to run it.
create table flights (
    key    text primary key,
    job_id integer not null,
    fence  integer
) strict, without rowid;

-- Jobs that are blocked until a flight has ended.
create table followers (
    job_id integer primary key,
    key    text not null
) strict;
create index followers_key on followers (key, job_id);
