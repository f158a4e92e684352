"""Every verb: where it lives and what it does. Enough for `--help` and completion, so they import none of them.

cancel         covey cancel
config         covey config
db             covey db
db_copy        covey db copy
demo           covey demo
dlq            covey dlq
doctor         covey doctor
edit           covey edit
enqueue        covey enqueue
list           covey list
logs           covey logs
queue          covey queue
remove         covey remove
retry          covey retry
run            covey run
server         covey server
show           covey show
spawn          covey spawn, covey after
status         covey status
token          covey token
tree           covey tree
wait           covey wait
why            covey why
worker_events  covey worker events
worker_list    covey worker list
worker_reap    covey worker reap
worker_start   covey worker start
worker_stop    covey worker stop
worker_unit    covey worker unit
"""

from __future__ import annotations

Table = dict[str, tuple[str, str]]  # name: (module or module:function, one line)

VERBS: Table = {
    "enqueue": ("enqueue", "Queue commands or tasks; prints their ids."),
    "run": ("run", "Queue a command, follow it, exit with its code."),
    "list": ("list:list_jobs", "List jobs, newest first."),
    "show": ("show", "Show one job with its history."),
    "status": ("status", "The queue at a glance; exits 1 or 2 if something is wrong."),
    "logs": ("logs", "Print what a job wrote; -f follows."),
    "wait": ("wait", "Wait until jobs have ended."),
    "cancel": ("cancel", "Cancel jobs; what runs is stopped."),
    "retry": ("retry", "Run failed, dead or cancelled jobs again."),
    "edit": ("edit", "Change a job that has not started."),
    "remove": ("remove", "Delete jobs that have ended."),
    "why": ("why", "Say why a job is where it is."),
    "tree": ("tree", "Draw a job with its children."),
    "spawn": ("spawn", "Inside a job: ask for a child of it."),
    "after": ("spawn:after", "Inside a job: ask for a job once its tree has ended."),
    "worker": ("", "Start, stop and look after workers."),
    "dlq": ("", "Dead letters: jobs that were given up."),
    "queue": ("", "List, limit, pause and resume queues."),
    "token": ("", "Who may use the HTTP server."),
    "config": ("", "Settings of this queue."),
    "db": ("", "Look after the database."),
    "server": ("server", "Serve the queue over HTTP: workers in containers, on other hosts."),
    "doctor": ("doctor", "Check the installation and the queue."),
    "demo": ("demo", "See it work: a small queue from start to end."),
}

GROUPS: dict[str, Table] = {
    "worker": {
        "start": ("worker_start:start", "Run a pool of workers in the foreground."),
        "stop": ("worker_stop:stop", "Ask the pools on this host to finish and leave."),
        "list": ("worker_list:list_workers", "List pools and their workers."),
        "events": ("worker_events:events", "Say what happened to pools and workers; -f follows."),
        "reap": ("worker_reap:reap", "End what lost pools left behind, hand their jobs back."),
        "unit": ("worker_unit:unit", "Print a systemd unit that runs a pool."),
    },
    "dlq": {
        "list": ("dlq:list_dead", "List dead letters."),
        "show": ("dlq:show", "Show one dead letter."),
        "retry": ("dlq:retry", "Run dead letters again."),
        "purge": ("dlq:purge", "Delete dead letters for good."),
    },
    "queue": {
        "list": ("queue:list_queues", "List queues and what is in them."),
        "set": ("queue:set_queue", "Change how a queue is worked."),
        "pause": ("queue:pause", "Start nothing more of a queue."),
        "resume": ("queue:resume", "Let a paused queue go on."),
    },
    "token": {
        "create": ("token:create", "Make a token; it is shown only once."),
        "list": ("token:list_tokens", "List tokens and what they may."),
        "revoke": ("token:revoke", "Let nobody in with a token any more."),
    },
    "config": {
        "list": ("config:list_settings", "List settings, their defaults and where they come from."),
        "get": ("config:get", "Print one setting."),
        "set": ("config:set_value", "Change one setting."),
        "unset": ("config:unset", "Go back to the default."),
    },
    "db": {
        "migrate": ("db:migrate", "Bring the tables up to date."),
        "check": ("db:check", "Check the database for damage."),
        "backup": ("db:backup", "Copy the live database to a file."),
        "copy": ("db_copy:copy", "Move a queue to another database."),
        "prune": ("db:prune", "Delete old ended jobs."),
        "vacuum": ("db:vacuum", "Give unused space back to the disk."),
    },
}
