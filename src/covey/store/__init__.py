"""The only place with SQL.

dialect     the first seam
families    rows of trees
migrate     forward migrations, numbered
postgres/   a queue on PostgreSQL
ready       what waits, and how a pool gets it
sqlite/     a queue in one file
statements  named SQL
store       rows in, rows out
tables      whole tables, in pages by their primary keys
time_limit  for how long a question may take, where others wait for the same threads
"""
