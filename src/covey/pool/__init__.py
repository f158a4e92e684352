"""The process that claims for its workers, beats, reports and enforces time-outs. It never runs user code.

main            from options to a running pool, and its end
pool            the main loop: what workers send, signals, the end
turn_loop       the store thread: takes turns with the queue
capacity        what a pool holds, and how many more jobs of each kind it has room for (pure)
dispatcher      claims go to workers
worker_process  one worker: its sockets, its slot, the jobs that it has
results         what became of jobs, as reports for the next turn: done, stopped, lost
watchdog        time-outs, cancels, workers that stall or grow too large
workers         all of them: wanted, starting, ready, shown to people
worker_types    a queue with workers of its own; how many
restart_policy  how soon another one is started in the place of one that has died (also of containers)
zygote_client   where workers come from: a zygote, another one when it is lost
zygote_process  one zygote: started, asked, ended; its import of the app
reaper          other pools that are dead: their processes are ended, their jobs handed back
ending          how a pool ends: what signals mean, until when its jobs may run on (pure)
live_output     what jobs write while they run, where the queue has no place for it on this host
"""
