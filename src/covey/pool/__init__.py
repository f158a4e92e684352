"""The process that claims for its workers, beats, reports and enforces time-outs. It never runs user code."""
