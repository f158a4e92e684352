"""HTTP in: a server that owns a queue, for workers in containers and on other hosts."""
