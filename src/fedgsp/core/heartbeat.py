"""How often a warm node's heart beats, and the interval by which it promises that; the node and the server both go by it."""

BEAT_SECONDS = 2.0
"""Between two heartbeats of a node that promises to beat often: while it works, and in a run of few nodes all the time."""
PROMISE = 10.5
"""The interval that it tells meanwhile; Flower takes none below 10 s, and 30 s is what a stock SuperNode tells."""
CALM_SECONDS, CALM = 5.0, 10.0
"""The same of a node that promises nothing: an idle one, or one of many, so that their hearts do not keep a SuperLink busy."""
