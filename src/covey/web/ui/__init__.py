"""The dashboard: pages made on the server by functions, and a little script that keeps them alive (static/).

site       the dashboard as HTTP: files, login, pages, what forms ask for, and the stream that says when to look again
pages      all pages, in the order of the navigation. A new one is a file and a line here
page       what a page is, and the frame around each: navigation, who looks, whether it is live
visit      one request as a page sees it: who looks, at which address, and the questions that may be asked for him
actions    what forms ask for: shown before it is done, done through the same endpoints that everybody has
overview   the queue at a glance: what is wrong first, then what is in it, who works, what happened
jobs       jobs, newest first: the ones that are asked for, and what can be done with them
job        one job: why it is where it is, what it wrote, how it came there, and how to run it again
tree       one tree: who has asked for whom, how far they are, and when each ran
trees      trees that are under way: jobs that wait for their children
queues     all queues: what is in them and how they are worked
queue      one queue: its counts, its rules, who serves it
workers    pools, their workers, what each runs; how they started
errors     what goes wrong, grouped: jobs that died or failed of the same, whatever their numbers are
dead       dead letters: jobs that were given up, and wait for somebody to decide
metrics    how it went: jobs per minute, what waits, how long tasks wait and run
system     the queue's own matters: where it is, its settings, who may come in
login      the door: with a token, or with a link that lets in once; and what is said when a page cannot be shown
again      a job as the object and the command line that would make it once more; what is secret stays out of both
output     what a program wrote for a terminal, as markup: its colours stay, what moves a cursor is left out
parts      what pages are made of: states, times, numbers, tables, buttons
html       text that is markup already, and functions that make it. Everything else is escaped: a page cannot forget to
assets     files that pages load: a name with a hash of what is in it, kept by browsers for ever, packed once
charts     charts, drawn by the server: they need no script, and a table beside them says the same in numbers
schedules  schedules: what comes by the clock, when it came last and when it comes next
"""
