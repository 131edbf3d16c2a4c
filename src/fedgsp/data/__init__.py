"""What clients hold: federated data in flat, memory-mapped arrays, and the sources it comes from."""

from fedgsp.data.federated import FederatedData, Split
from fedgsp.data.sources import load

__all__ = ["FederatedData", "Split", "load"]
