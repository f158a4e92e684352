"""What a test suite needs that uses Covey.

clock  a clock that moves when told
until  waiting for a promise to come true
"""

from .clock import FakeClock
from .until import until

__all__ = ["FakeClock", "until"]
