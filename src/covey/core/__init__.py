"""Pure rules and words: no I/O, no clock, no chance.

bodies     what requests and answers over HTTP hold, beside the values of model and view
check      what a job must look like before it is stored
clocks     instants that a clock which was ahead has written
codec      JSON in and out, strict where a lenient codec would change a value on the way
endpoints  what is said over HTTP
label      who ran a job, in one text
machine    the rules of one job
model      a job as values: what was asked for, its row, its claim, its report
objects    a job as a JSON object
ports      the second seam
retry      when a failed job is tried again
specs      from what a caller asked for to a Spec
times      times as people write them: `90s`, `2h`, `2031-05-01T09:00:00+02:00`
tokens     tokens of the HTTP server
tree       the rules of families
turn       what pools and the engine say to each other
view       what people and programs see
"""
