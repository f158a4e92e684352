"""What only the operating system can tell or do. No other room names a call that only one system has, or opens /proc.

calls         what systems do differently: one protocol, and the one that is used here
linux         eventfd, memfd, pidfd, sequenced packets, subreapers, /proc
posix         any Unix, for clients: pipes, the process table by psutil; COVEY_SYSTEM=posix
darwin        macOS alone: which boot of the machine this is
windows       Windows, for clients
waiting       until descriptors can be read or written
process       one process: whether it lives, the parent without which a pool ends, signals that come in
process_tree  a process and its descendants: found, ended for certain; the mark of what pools start
cgroup        control groups (version 2): groups killed at a stroke, kills for lack of memory
resources     how many workers suit this machine; how many files they may open
locks         locks on bytes of a file
time_zones    the newer of the system's zones and those of the package tzdata
files         what the system shows of open files, sockets and mounts
"""
