"""The process that claims for its workers, beats, reports and enforces time-outs. It never runs user code.

asking          what running tasks ask of the queue
capacity        how many jobs a pool holds ahead
care            what a pool looks at now and then
dispatcher      which worker gets which job, and how many more the pool could hold
landing         claims that have arrived and are handed out while the store is already busy with the
live            a directory for live output of our own, where the queue has none on this host
live_output     what jobs write here, as they write it, for a queue that cannot see our files
main            from options to a running pool
memory_kills    whether a process that was killed was killed for lack of memory
pool            the pool
reaper          watches the other pools of the queue
roster          the workers as people see them
scout           a zygote goes ahead
silence         whether a zygote is frozen
turn_loop       the pool's store thread
verdict         what a run amounts to
watchdog        looks after running jobs
worker_process  One worker as its pool sees it
worker_types    worker types
workers         the workers of a pool
zygote_client   where a pool's workers come from
zygote_process  the pool's end of the zygote
"""
