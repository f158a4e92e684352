-- The result cache. As for SQLite.
alter table {jobs} add column cache_key text collate "C", add column cached_from bigint;
create index jobs_cache_key on {jobs} (cache_key) where cache_key is not null;

alter table {payloads} add column cache_parts text,
    add column cache_refresh integer not null default 0 check (cache_refresh in (0, 1));

create table {cache_records} (
    key            text collate "C" primary key,
    queue          text collate "C" not null,
    task           text collate "C" not null,
    parts          text    not null,
    result         text,
    info           text,
    exit_code      integer,
    stdout         bytea,
    stderr         bytea,
    stdout_dropped bigint not null default 0,
    stderr_dropped bigint not null default 0,
    outputs        text,
    job_id         bigint not null,
    took_us        bigint not null default 0,
    size           bigint not null,
    created_at     bigint not null,
    used_at        bigint not null
);
create index cache_records_used on {cache_records} (used_at, size);
create index cache_records_task on {cache_records} (task, queue, created_at);

create table {flights} (
    key    text collate "C" primary key,
    job_id bigint not null,
    fence  bigint
) with (fillfactor = 50);

create table {followers} (
    job_id bigint primary key,
    key    text collate "C" not null
) with (fillfactor = 50);
create index followers_key on {followers} (key, job_id);
