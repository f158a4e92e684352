"""The kill harness: clients enqueue, pools work, a killer takes whom it finds; then a checker looks.

    make torture [MINUTES=…] [STORE=sqlite|postgres|http] [SEED=…] [KILLS=… JOBS=…]

Three books are kept outside the code under test, so that the checker need not believe it: what clients were about to
ask and were told (history), what jobs did (traces), and what a trigger saw of every change of a job (audit).
"""
