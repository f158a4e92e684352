"""Every verb: where it lives and what it does. Enough for `--help` and completion, so they import none of them.

cache          covey cache
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
metrics        covey metrics
queue          covey queue
remove         covey remove
retry          covey retry
run            covey run
schedule       covey schedule
schedule_edit  covey schedule edit
server         covey server
show           covey show
spawn          covey spawn, covey after
status         covey status
token          covey token
tree           covey tree
ui             covey ui
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
    "status": ("status", "The queue at a glance; --check for monitors."),
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
    "schedule": ("", "Jobs that are made by themselves: cron, periods, instants."),
    "token": ("", "Who may use the HTTP server."),
    "cache": ("", "What was computed before."),
    "config": ("", "Settings of this queue."),
    "db": ("", "Look after the database."),
    "server": ("server", "Serve the queue over HTTP: workers in containers, on other hosts."),
    "metrics": ("metrics", "Print what Prometheus reads."),
    "ui": ("ui", "Open the dashboard in a browser."),
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
    "schedule": {
        "add": ("schedule:add", "Make jobs by cron, in a period or at instants."),
        "list": ("schedule:list_schedules", "List schedules and how they fare."),
        "show": ("schedule:show", "Show one schedule and its last ticks."),
        "next": ("schedule:next_ticks", "Say when it is due, or when a cron expression would be."),
        "pause": ("schedule:pause", "Fire nothing more of it."),
        "resume": ("schedule:resume", "Let a paused one go on."),
        "run": ("schedule:run", "Run it now, besides its ticks."),
        "backfill": ("schedule:backfill", "Make the jobs of ticks that had none."),
        "edit": ("schedule_edit:edit", "Change a schedule."),
        "remove": ("schedule:remove", "Delete a schedule; its jobs stay."),
    },
    "token": {
        "create": ("token:create", "Make a token; it is shown only once."),
        "list": ("token:list_tokens", "List tokens and what they may."),
        "revoke": ("token:revoke", "Let nobody in with a token any more."),
    },
    "cache": {
        "status": ("cache:status", "Say what the cache keeps, and what it was good for."),
        "explain": ("cache:explain", "Say why a job ran or did not."),
        "check": ("cache:check", "Run a cached job once more and compare."),
        "prune": ("cache:prune", "Keep less."),
    },
    "config": {
        "list": ("config:list_settings", "List settings, their defaults and where they come from."),
        "show": ("config:list_settings", "The same as list."),
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

# What people of other systems type, and what does that here.
HINTS: dict[str, str] = {
    "add": "covey enqueue",
    "submit": "covey enqueue",
    "push": "covey enqueue",
    "follow": "covey logs -f JOB",
    "log": "covey logs JOB",
    "output": "covey logs JOB",
    "tail": "covey logs -f JOB",
    "kill": "covey cancel JOB",
    "stop": "covey worker stop (workers), covey cancel JOB (a job)",
    "start": "covey worker start (workers); jobs start by themselves",
    "worker-start": "covey worker start",
    "workers": "covey worker list",
    "restart": "covey retry JOB (a job that ran), covey retry --again JOB (once more)",
    "rerun": "covey retry --again JOB",
    "requeue": "covey retry JOB",
    "rm": "covey remove JOB",
    "delete": "covey remove JOB",
    "clean": "covey db prune",
    "clear": "covey db prune (history), covey cancel --queue NAME (what waits)",
    "purge": "covey cancel --queue NAME (what waits), covey dlq purge (dead letters)",
    "reset": "covey cancel --all",
    "stash": "covey edit JOB --run-at TIME (it starts then)",
    "switch": "covey edit JOB --priority N",
    "parallel": "covey queue set NAME --concurrency N",
    "group": "covey queue (a group is a queue)",
    "groups": "covey queue list",
    "queues": "covey queue list",
    "pause": "covey queue pause NAME",
    "resume": "covey queue resume NAME",
    "ls": "covey list",
    "jobs": "covey list",
    "ps": "covey list --state processing",
    "stats": "covey status",
    "info": "covey show JOB, covey status",
    "inspect": "covey show JOB",
    "dead": "covey dlq list",
    "settings": "covey config list",
    "beat": "covey schedule",
    "version": "covey --version",
    "init": "covey enqueue; the first job makes the queue",
    "daemon": "covey worker start --detach",
    "block": "covey wait JOB",
}
