"""What is trained: models by name, any model of the user's own, and the task (loss and metrics)."""

from fedgsp.core.callable_module import make_callable
from fedgsp.models.catalog import BUILT_IN, ModelSpec, SampleKind, fitting, initial_tensors, resolve
from fedgsp.models.cnn import leaf_cnn, small_cnn
from fedgsp.models.task import Task, classification, multilabel, regression, sequence_labelling, usual_task

__all__ = [
    "BUILT_IN",
    "ModelSpec",
    "SampleKind",
    "Task",
    "classification",
    "fitting",
    "initial_tensors",
    "leaf_cnn",
    "multilabel",
    "regression",
    "resolve",
    "sequence_labelling",
    "small_cnn",
    "usual_task",
]

make_callable(__name__, "fedgsp.report.model_table", "models")  # fedgsp.models(data)
