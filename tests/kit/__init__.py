"""What the tests of Covey are made of.

factories    specs and pools with everything filled in
hand_pool    a pool driven by hand: one call, one turn
checker      what must hold of a queue whatever happened to it
running      real pools and servers on a real queue
http_server  a server in this process, with or without a socket
postgres     a server of the tests' own
proxy        what may stand before it: connections cut at a COMMIT, another session for every transaction
hosts        hosts of a fleet, as network namespaces
faults       failpoints, child processes that can be killed, disks that fail
lacking      what this machine has not
"""

from .checker import check_queue
from .factories import after, child, command, pool_info, python_task, sibling
from .hand_pool import HandPool

__all__ = ["HandPool", "after", "check_queue", "child", "command", "pool_info", "python_task", "sibling"]
