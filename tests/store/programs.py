"""Programs that tests run in processes of their own: `Child(programs.CLIENT, path, …)`."""

# Enqueues one job after the other and prints each id once it was acknowledged.
CLIENT = """
import sys
from covey.open import open_engine
from tests.kit import command
engine = open_engine(sys.argv[1])
for n in range(int(sys.argv[2])):
    (made,) = engine.enqueue([command(f"echo {n}")])
    print(made.id, flush=True)
engine.close()
"""

# Claims a few at a time and completes them, until nothing is left; prints what it had.
WORKER = """
import sys
from covey.open import open_engine
from tests.kit import HandPool
from tests.kit.hand_pool import report
engine = open_engine(sys.argv[1])
pool = HandPool(engine)
print("ready", flush=True)
sys.stdin.readline()
ids, claims = [], []
while True:
    claims = pool.turn(*(report(claim, "success") for claim in claims), want=int(sys.argv[2])).claims
    if not claims:
        break
    ids += [claim.id for claim in claims]
engine.leave(pool.id)
print(*ids, flush=True)
engine.close()
"""

# Does one thing and says what came of it, in one line.
ONCE = """
import sys
from covey.open import open_engine
from covey.errors import CoveyError
from tests.kit import command
try:
    engine = open_engine(sys.argv[1])
    print(engine.enqueue([command()])[0].id, flush=True)
    engine.close()
except CoveyError as error:
    print(error)
    sys.exit(error.exit_code)
"""

# Enqueues batches of three, whatever happens; prints the ids of a batch, or what was wrong.
STUBBORN = """
import sys
from covey.open import open_engine
from covey.errors import StoreError
from tests.kit import command
engine = open_engine(sys.argv[1])
for n in range(int(sys.argv[2])):
    try:
        made = engine.enqueue([command("x" * 3000) for _ in range(3)])
        print("ids", *(each.id for each in made), flush=True)
    except StoreError as error:
        print("error", error, flush=True)
print("end", flush=True)
engine.close()
"""

# Enqueues batches of three until something is wrong; then it dies as in a crash, with everything as it is.
BRITTLE = """
import os, signal, sys
from covey.open import open_engine
from covey.errors import StoreError
from tests.kit import command
engine = open_engine(sys.argv[1])
try:
    while True:
        made = engine.enqueue([command("x" * 300) for _ in range(3)])
        print("ids", *(each.id for each in made), flush=True)
except StoreError as error:
    print(type(error).__name__, error, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""

# Waits for the write lock, says so, keeps it until it is told to leave.
HOLDER = """
import sys
from covey.store.sqlite.gate import Gate
gate = Gate.of(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    gate.enter(60)
    print("inside", flush=True)
    sys.stdin.readline()
    gate.leave()
    print("left", flush=True)
"""
