"""What tests of Covey, and of stores and transports for it, are made of.

clock      a clock that moves when told
factories  specs and pools with everything filled in
hand       a pool driven by hand: one call, one turn
until      waiting for a promise to come true
checker    what must hold of a queue whatever happened to it
faults     failpoints, child processes that can be killed, failing disks
"""

from .checker import check_queue
from .clock import FakeClock
from .factories import after, child, command, pool_info, python_task, sibling
from .hand import HandPool
from .until import until

__all__ = [
    "FakeClock",
    "HandPool",
    "after",
    "check_queue",
    "child",
    "command",
    "pool_info",
    "python_task",
    "sibling",
    "until",
]
