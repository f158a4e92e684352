"""One verb, one transaction: what a queue can be asked, over the Store.

advice         commands that a person is advised to type
again          the one place where what the database gave up is tried again
arrivals       what an enqueue asks and writes, in whichever transaction
cache          what people ask of the cache
cache_records  what the cache keeps, and gives to jobs that ask for the same
callers        jobs that end with whoever asked for them
claims         what pools may take now
db_copy        a queue moves to another database
declarations   schedules that apps declare, judged when pools come and go
duties         housekeeping, a file a duty
engine         its parts, the ports passed on to them, enqueue and settings
flights        of jobs with one key one runs at a time, others follow it
guests         an enqueue as a guest in somebody else's transaction
health         whether all is well
leftovers      files that a run leaves in the live directory when its pool is killed
job_view       a job and its attempts as people see them
jobs           what a person may want of jobs: cancel, retry, edit, remove
live_output    output of running jobs
loans          jobs on loan
pool_view      a pool and its workers as people see them
pools          who is lost, and what becomes of what it held
queues         rules of queues, set and obeyed
reopen         a person wants an ended job after all
reports        what turns report, and what their pools no longer have
requests       enqueues and registrations with a name of their own
schedules      schedules as people change and see them
sealing        a sealed queue
spawns         what a success asks for besides its result
ticks          the fire: what is due is decided inside a turn
tokens         tokens
trees          what the ends of one transaction mean for the families of those that ended
turn           turns of pools
turn_steps     one turn inside a transaction, step by step
views          what can be seen of a queue
tallies        how many jobs there are, without counting them
why            why a job is where it is
work_bell      how a pool waits for work
"""
