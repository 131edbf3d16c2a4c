"""Callbacks that log a run to other tools: TensorBoard, MLflow, and Weights & Biases.

They go by what is already there: a round that was logged before (a resumed or repeated one has the same figures, to the bit) is
not logged again, and one that is missing is caught up with.
"""

from fedgsp.report.loggers.mlflow import MLflow
from fedgsp.report.loggers.tensorboard import TensorBoard
from fedgsp.report.loggers.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "WandB"]
