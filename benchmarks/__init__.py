"""How fast Covey is, each figure as a ratio to a reference measured in the same run. `python -m benchmarks`."""
