-- Who waits for a job so that it shall end with him: `covey run`. Without a reference to jobs: the rows are few and whoever
-- watches removes those whose job is over, while a reference would be looked up for every job that is pruned.
create table callers (
    job_id  integer primary key,
    host    text    not null,
    boot    text    not null,
    pid     integer not null,
    ticks   integer not null,
    lease_s real    not null,
    beat    integer not null default 0
) strict;
