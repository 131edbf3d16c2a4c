"""What the server does with the chains' results: server rules."""

from fedgsp.server.adaptive import Adagrad, Adam, Yogi
from fedgsp.server.around import Around
from fedgsp.server.clustered import Clustered
from fedgsp.server.combine import Combine, Models
from fedgsp.server.controls import Controls
from fedgsp.server.dyn import DynMean
from fedgsp.server.exp import ExP
from fedgsp.server.fused import Fused
from fedgsp.server.hand_on import HandOn
from fedgsp.server.ida import IDA
from fedgsp.server.mean import Mean
from fedgsp.server.meta import Meta
from fedgsp.server.momentum import Momentum
from fedgsp.server.nova import Nova
from fedgsp.server.rule import Bench, ServerRule, Update, View, evaluated_model
from fedgsp.server.tables import Tables

__all__ = [
    "IDA",
    "Adagrad",
    "Adam",
    "Around",
    "Bench",
    "Clustered",
    "Combine",
    "Controls",
    "DynMean",
    "ExP",
    "Fused",
    "HandOn",
    "Mean",
    "Meta",
    "Models",
    "Momentum",
    "Nova",
    "ServerRule",
    "Tables",
    "Update",
    "View",
    "Yogi",
    "evaluated_model",
]
