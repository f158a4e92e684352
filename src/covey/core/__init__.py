"""Pure rules and words: no I/O, no clock, no chance.

bodies     what requests and answers over HTTP hold, beside the values of model and view
cache_key  when two runs are the same run: named parts, their key, what differs, in words
check      what a job must look like before it is stored
clocks     instants that a clock which was ahead has written
codec      JSON in and out, strict where a lenient codec would change a value on the way
cron       cron expressions: which instants they name, in words
endpoints  what is said over HTTP
fingerprint  errors that are the same but for their numbers
forms      what the values of an option look like, wherever they are said
label      who ran a job, in one text
machine    the rules of one job
model      a job as values: what was asked for, its row, its claim, its report
objects    a job as a JSON object
options    each option of a job, once: its names, what it may be, where it is kept, what holds where nothing is said
query        the query language: words to conditions
ports      the second seam
retry      when a failed job is tried again
schedule_rows   schedules and ticks as their tables have them
schedule_views  schedules as they are said and shown
schedules  which instants a schedule names, what is decided of each
specs      from what a caller asked for to a Spec; what several options mean together
times      times as people write them: `90s`, `2h`, `2031-05-01T09:00:00+02:00`
tokens     tokens of the HTTP server
tree       the rules of families
turn       what pools and the engine say to each other
view       what people and programs see
"""
