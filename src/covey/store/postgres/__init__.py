"""A queue on PostgreSQL: writers beside each other.

bell          lISTEN
binding       statements as psycopg wants them
bridge        from the engine, which is not async, to an async connection
caller        the queue's tables over a connection that is somebody else's, inside a transaction
database      postgreSQL through psycopg
dead_entries  where a claim goes on when the way from the beginning is long
explained     a server's errors as one line that says what, which, what now
functions     statements that PostgreSQL plans once a session instead of every time
lenders       whose connection an enqueue may borrow
session       a session that has something else to do while the server works
store         what travels with a turn in one message
url           what a PostgreSQL URL names
"""
