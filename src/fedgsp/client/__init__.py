"""What a client does with the model it is handed: one training loop, and local rules that hook into it."""

from fedgsp.client.rules import SGD, Visit
from fedgsp.client.schedule import Cosine, Decay, Schedule, Steady

__all__ = ["SGD", "Cosine", "Decay", "Schedule", "Steady", "Visit"]
