-- Why a job is blocked: a mark for each reason. As for SQLite.
alter table {jobs} add column blocked_by integer not null default 0;
update {jobs} set blocked_by = case
    when id in (select job_id from {followers})
         and id not in (select job_id from {edges} where outcome is null) then 4
    when parent_id is null then 1
    else 2 end
where state = 'blocked';
