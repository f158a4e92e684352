"""HTTP out: a queue behind a server, as a Source and a Client like any other.

messages   what a request says and what an answer means
polling    One long poll at a time, in a thread of its own
remote     the queue behind a server
schedules  schedules: one request each
transport  how a request travels
"""
