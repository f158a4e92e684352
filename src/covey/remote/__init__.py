"""HTTP out: a queue behind a server, as a Source and a Client like any other."""
