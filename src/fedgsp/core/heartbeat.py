"""How often a warm node's heart beats, and the interval by which it promises that; the node and the server both go by it."""

BEAT_SECONDS = 2.0
"""Between two heartbeats of a node that promises to beat often."""
PROMISE = 10.5
"""The interval that it tells; Flower takes none below 10 s, and 30 s is what a stock SuperNode tells."""
