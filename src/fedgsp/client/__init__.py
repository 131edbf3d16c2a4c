"""What a client does with the model it is handed: one training loop, and local rules that hook into it."""

from fedgsp.client.anchor import Anchored
from fedgsp.client.fusion import Fusion
from fedgsp.client.mmd import MMD
from fedgsp.client.prox import Prox
from fedgsp.client.rules import SGD, Visit
from fedgsp.client.schedule import Cosine, Decay, Schedule, Steady

__all__ = ["MMD", "SGD", "Anchored", "Cosine", "Decay", "Fusion", "Prox", "Schedule", "Steady", "Visit"]
