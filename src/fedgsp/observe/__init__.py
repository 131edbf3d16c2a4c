"""Observers for people who live in other tools: TensorBoard and MLflow.

Both go by what is already there: a round that was logged before (a resumed or repeated one has the same figures, to the bit) is
not logged again, and one that is missing is caught up with.
"""

from fedgsp.observe.mlflow import MLflow
from fedgsp.observe.tensorboard import TensorBoard

__all__ = ["MLflow", "TensorBoard"]
