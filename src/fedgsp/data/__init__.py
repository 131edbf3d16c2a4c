"""What clients hold: federated data in flat, memory-mapped arrays, and the sources it comes from."""

from fedgsp.data.federated import FederatedData, Part
from fedgsp.data.sources import load

__all__ = ["FederatedData", "Part", "load"]
