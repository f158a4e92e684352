"""What only the operating system can tell or do.

cgroup        control groups (version 2), where we may make our own
mark          the mark of everything that a pool starts: COVEY_RUN in its environment, as others
process_tree  processes and their descendants
resources     how many workers suit this machine
"""
