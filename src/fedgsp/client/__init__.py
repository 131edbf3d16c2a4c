"""What a client does with the model it is handed: one training loop, and local rules that hook into it."""

from fedgsp.client.anchor import Anchored
from fedgsp.client.distill import Distill
from fedgsp.client.dyn import Dyn
from fedgsp.client.fusion import Fusion
from fedgsp.client.keep import ClientStore
from fedgsp.client.mmd import MMD
from fedgsp.client.moon import Moon
from fedgsp.client.per_fedavg import PerFedAvg
from fedgsp.client.prox import Prox
from fedgsp.client.rules import SGD, Pull, Visit, trained
from fedgsp.client.scaffold import Scaffold
from fedgsp.client.schedule import Cosine, Decay, Schedule, Steady
from fedgsp.client.uga import UGA

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
    "Moon",
    "PerFedAvg",
    "Prox",
    "Pull",
    "Scaffold",
    "Schedule",
    "Steady",
    "Visit",
    "trained",
]
