"""A queue on PostgreSQL: writers beside each other.

bell          lISTEN
binding       statements as psycopg wants them
bridge        from the engine, which is not async, to an async connection
caller        the queue's tables over a connection that is somebody else's, inside a transaction
database      postgreSQL through psycopg
dead_entries  where a claim goes on when the way from the beginning is long
functions     statements that PostgreSQL plans once a session instead of every time
lenders       whose connection an enqueue may borrow
session       one connection: lost, found, its errors, other work meanwhile
store         row locks; turns and enqueues in one message
upkeep        indexes, size, dead rows, old receipts
url           what a PostgreSQL URL names
"""
