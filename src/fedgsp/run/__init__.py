"""The loop around it all: configuration, the round loop, and a run directory that never loses work."""
