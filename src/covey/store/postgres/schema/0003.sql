-- Who waits for a job so that it shall end with him: `covey run`. As for SQLite.
create table {callers} (
    job_id  bigint primary key,
    host    text not null,
    boot    text not null,
    pid     bigint not null,
    ticks   bigint not null,
    lease_s double precision not null,
    beat    bigint not null default 0
) with (fillfactor = 50);
