"""What the server does with the chains' results: server rules."""

from fedgsp.server.adaptive import Adagrad, Adam, Yogi
from fedgsp.server.clustered import Clustered
from fedgsp.server.fused import Fused
from fedgsp.server.hand_on import HandOn
from fedgsp.server.ida import IDA
from fedgsp.server.mean import Mean
from fedgsp.server.momentum import Momentum
from fedgsp.server.rule import ServerRule, Update, View, Yields

__all__ = [
    "IDA",
    "Adagrad",
    "Adam",
    "Clustered",
    "Fused",
    "HandOn",
    "Mean",
    "Momentum",
    "ServerRule",
    "Update",
    "View",
    "Yields",
    "Yogi",
]
