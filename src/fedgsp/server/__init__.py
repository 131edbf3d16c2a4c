"""What the server does with the chains' results: server rules."""

from fedgsp.server.adaptive import Adagrad, Adam, Yogi
from fedgsp.server.fused import Fused
from fedgsp.server.ida import IDA
from fedgsp.server.mean import Mean
from fedgsp.server.momentum import Momentum
from fedgsp.server.rule import ServerRule, Update, View

__all__ = ["IDA", "Adagrad", "Adam", "Fused", "Mean", "Momentum", "ServerRule", "Update", "View", "Yogi"]
