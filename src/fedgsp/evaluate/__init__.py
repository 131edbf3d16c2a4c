"""How good is a model: per client, as LEAF weighs clients, plainly over all samples, and on clients that never train."""

from fedgsp.evaluate.forward import SampleScores, score_rows
from fedgsp.evaluate.summary import ClientScores, Summary, per_client, summarise

__all__ = ["ClientScores", "SampleScores", "Summary", "per_client", "score_rows", "summarise"]
