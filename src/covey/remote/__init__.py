"""HTTP out: a queue behind a server, as a Source and a Client like any other.

polling    One long poll at a time, in a thread of its own
remote     the queue behind a server
transport  how a request travels
"""
