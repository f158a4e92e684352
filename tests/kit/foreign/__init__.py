"""Another system, played: a Python that has only what that system has."""
