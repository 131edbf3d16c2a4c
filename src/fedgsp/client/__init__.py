"""What a client does with the model it is handed: one training loop, and local rules that hook into it."""

from fedgsp.client.anchor import Anchored
from fedgsp.client.client_state import ClientStore
from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.distill import Distill
from fedgsp.client.dyn import Dyn
from fedgsp.client.fusion import Fusion
from fedgsp.client.mmd import MMD
from fedgsp.client.moon import Moon
from fedgsp.client.per_fedavg import PerFedAvg
from fedgsp.client.prox import Prox
from fedgsp.client.rules import SGD, trained
from fedgsp.client.scaffold import Scaffold
from fedgsp.client.schedule import Cosine, Decay, LearningRateSchedule, Piecewise, Steady, Warmup
from fedgsp.client.stepping import Stepping
from fedgsp.client.uga import UGA
from fedgsp.client.update_noise import UpdateNoise

__all__ = [
    "MMD",
    "SGD",
    "UGA",
    "Anchored",
    "ClientStore",
    "Cosine",
    "Decay",
    "Distill",
    "Dyn",
    "Fusion",
    "GradientTerm",
    "LearningRateSchedule",
    "LocalContext",
    "Moon",
    "PerFedAvg",
    "Piecewise",
    "Prox",
    "Scaffold",
    "Steady",
    "Stepping",
    "UpdateNoise",
    "Warmup",
    "trained",
]
