"""What a queue says of itself to programs that watch it.

prometheus  all that is measured, as text that Prometheus reads
"""
