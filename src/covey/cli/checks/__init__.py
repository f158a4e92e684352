"""What `covey doctor` looks at, a file for each thing that can be ill. Each is imported when it is looked at.

check_result  what was found, in words, and what to do about it
host          the installation and the host
leftovers     what pools and servers that were killed have left on this host
postgres      a queue on PostgreSQL
server        a queue behind a server
settings      settings that are allowed, each for itself, and still make no sense; pools that work
sqlite        a queue in a SQLite file
"""
