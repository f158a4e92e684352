"""The command line: one file per verb. Only the verb that was called is imported."""
