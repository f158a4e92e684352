"""The processes that run user code, and what they leave behind.

async_worker    runs `async def` tasks, many at a time in one event loop
children        the children of a job as its join sees them
command_worker  runs commands, one at a time
context         what a running task knows about its own job, and what it may ask for
execution       from a claim to a call and back
main            the first thing a forked worker does
messages        what pool, zygote and worker say to each other
output          what a job writes
pool_link       a worker's place
setting         what is the same for every worker of a pool
slot            what a worker is doing, visible to its pool at any instant
spawn_file      what a command spawns: JSON objects, one a line, that it appends to the file that
spawns          what a run asks for besides its result
sync_worker     runs Python tasks, one after the other
zygote          the zygote
zygote_guard    stands between a pool and its zygote
"""
