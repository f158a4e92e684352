"""What only the operating system can tell or do.

process       one process: the parent without which a pool ends, the signals that come in
process_tree  a process and its descendants: found, ended for certain; the mark of what pools start
cgroup        control groups (version 2): groups killed at a stroke, kills for lack of memory
resources     how many workers suit this machine; how many files they may open
time_zones    the newer of the system's zones and those of the package tzdata
"""
