"""One verb, one transaction: what a queue can be asked, over the Store.

advice       commands that a person is advised to type
again        the one place where what the database gave up is tried again
arrivals     what an enqueue asks and writes, in whichever transaction
callers      jobs that end with whoever asked for them
claims       what pools may take now
db_copy      a queue moves to another database
duties       housekeeping
engine       the local engine
guests       an enqueue as a guest in somebody else's transaction
health       whether all is well
leftovers    files that a run leaves in the live directory when its pool is killed
live_output  output of running jobs
loans        jobs on loan
queues       which pending jobs may be claimed now
reopen       a person wants an ended job after all
reports      what turns report, and what their pools no longer have
requests     enqueues and registrations with a name of their own
sealing      a sealed queue
siblings     what a running child may know of the others
spawns       what a success asks for besides its result
stopping     cancelled jobs whose processes are not gone
tokens       tokens
trees        what the ends of one transaction mean for the families of those that ended
turn         the engine as a pool sees it
views        what can be seen of a queue
why          why a job is where it is
"""
