"""What the server does with the chains' results: server rules."""

from fedgsp.server.adaptive import Adagrad, Adam, Yogi
from fedgsp.server.averaged import Averaged
from fedgsp.server.clipping import CentredClipping, ClippedMean
from fedgsp.server.clustered import Clustered
from fedgsp.server.combine import Combine, Models
from fedgsp.server.distillation import DistillServer
from fedgsp.server.dyn import DynServer
from fedgsp.server.fedexp import FedExP
from fedgsp.server.fusion import FusionServer
from fedgsp.server.geometric_median import GeometricMedian
from fedgsp.server.ida import IDA
from fedgsp.server.krum import Krum
from fedgsp.server.mean import Mean
from fedgsp.server.median import Median, TrimmedMean
from fedgsp.server.meta import Meta
from fedgsp.server.model_rotation import ModelRotation
from fedgsp.server.momentum import Momentum
from fedgsp.server.nova import Nova
from fedgsp.server.private import Private
from fedgsp.server.rule import Bench, ServerRule, Update, View, evaluated_model
from fedgsp.server.scaffold import ScaffoldServer
from fedgsp.server.warm_start import WarmStart
from fedgsp.server.wrapper import Wrapper

__all__ = [
    "IDA",
    "Adagrad",
    "Adam",
    "Averaged",
    "Bench",
    "CentredClipping",
    "ClippedMean",
    "Clustered",
    "Combine",
    "DistillServer",
    "DynServer",
    "FedExP",
    "FusionServer",
    "GeometricMedian",
    "Krum",
    "Mean",
    "Median",
    "Meta",
    "ModelRotation",
    "Models",
    "Momentum",
    "Nova",
    "Private",
    "ScaffoldServer",
    "ServerRule",
    "TrimmedMean",
    "Update",
    "View",
    "WarmStart",
    "Wrapper",
    "Yogi",
    "evaluated_model",
]
