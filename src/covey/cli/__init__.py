"""The command line: one file per verb. Only the verb that was called is imported.

apps_queue         which queue a pool with an app works on: --db, else the one that the app names, else
checks/            what `covey doctor` looks at, a file for each thing that can be ill
codes              a job's end as an exit code
coercion           words as numbers, without the schema library that typer would load for it
commands/          every verb
container_options  what `covey worker start --executor docker` does
container_server   the server that a supervisor's containers work through
demo_tasks         the Python tasks of `covey demo`
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
serving            what `covey server` does
slow_reader        standard output or error of a command that has more to do than to wait for a reader
specs              from words, JSON and lines to Specs
times              times as people read them: `3s`, `2m 5s`, `in 4h`
words              the words of a command inside a command line
worker_options     what `covey worker start` does, without typer
"""
