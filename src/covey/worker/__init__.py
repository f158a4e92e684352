"""The processes that run user code, and what they leave behind.

zygote          imports the app, forks workers, buries them
zygote_guard    stands above the zygote, should it be killed together with its pool
main            what a forked worker does first
messages        what pool, zygote and worker say to each other
pool_link       a worker's end: where jobs arrive and reports leave
slot            what a worker has started, in memory that its pool sees
execution       from a claim to a call and back
command_worker  one command at a time
sync_worker     one function at a time
async_worker    many coroutines
output          what a job writes: kept, shown while it runs
context         what a task knows about its job, and may ask for
spawns          what a run asks for besides its result
spawn_file      the same for a command: JSON objects in a file
"""
