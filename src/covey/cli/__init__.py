"""The command line: one file per verb. Only the verb that was called is imported.

apps_queue         which queue a pool with an app works on: --db, else the one that the app names, else
caching            the flags of `run` and `enqueue` about the cache
checks/            what `covey doctor` looks at, a file for each thing that can be ill
commands/          every verb
container_options  what `covey worker start --executor docker` does
container_server   the server that a supervisor's containers work through
demo_tasks         the Python tasks of `covey demo`
detached           a pool that outlives the terminal
exit_codes         how a command ends
fast_path          the short way for a plain `covey enqueue`, which scripts call in loops, and `covey
follow             what a job writes, as it writes it
job_input          from the words and options of a command line to jobs on disk
main               where `covey` begins
open_queue         which queue a command works on, and opening it
options            Options and arguments that several verbs share
parser             the whole command line as a group that knows every verb by name and imports only the
pasting            advice that can be pasted
printing           what is printed
render             tables for people
reusing            a server that runs for this queue is found, and its workers are used instead of
run_caller         the caller of a job
run_pool           who works on the job of a `covey run`
selection          jobs that a verb is about: named one by one, or all that match a query
schedule_input     from words and options to what is said of a schedule
serving            what `covey server` does
slow_reader        standard output or error of a command that has more to do than to wait for a reader
specs              from words, JSON and lines to Specs
worker_options     what `covey worker start` does, without typer
"""
