"""One small file for each queue that Covey is compared with, Covey included. Run by that queue's own interpreter.

A module here has the class ``Queue``, a ``Peer``: how a job is enqueued, how many are left, how a worker runs. Its task
calls ``ran``. What must be installed for it is said in benchmarks/contestants.py.
"""
