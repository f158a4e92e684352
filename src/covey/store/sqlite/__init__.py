"""A queue in one file: writers one by one.

bell        a wake-up hint between processes
database    SQLite through apsw
disk_space  how much room a disk has left
gate        the fair write lock beside a SQLite file
in_memory   the bell of a database in memory
sharing     a queue that several users share
"""
