"""How good is a model: per client, as LEAF weighs clients, plainly over all samples, and on clients that never train."""

from fedgsp.core.callable_module import make_callable
from fedgsp.evaluate.forward import SampleScores, evaluate_rows
from fedgsp.evaluate.summary import ClientScores, Summary, per_client, summarise

__all__ = ["ClientScores", "SampleScores", "Summary", "evaluate_rows", "per_client", "summarise"]

make_callable(__name__, "fedgsp.run.evaluate_run", "evaluate")  # fedgsp.evaluate(...)
