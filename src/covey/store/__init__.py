"""The only place with SQL.

asking      named statements asked of a database
dialect     the first seam
families    rows of trees
job_rows    jobs as rows: what an insert fills, what a view reads
migrate     forward migrations, numbered
postgres/   a queue on PostgreSQL
ready       what waits, and how a pool gets it
sqlite/     a queue in one file
statements  named SQL: the files of sql/, by noun
store       rows in, rows out
tables      whole tables, in pages by their primary keys
time_limit  for how long a question may take, where others wait for the same threads
turn_state  what a turn must know before anything else
"""
