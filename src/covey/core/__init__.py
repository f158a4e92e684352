"""Pure rules and words: no I/O, no clock, no chance."""
