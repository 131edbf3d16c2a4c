"""A CSV file: one column is the label, one names the client, the rest are features."""

import csv
import tempfile
from pathlib import Path

import numpy as np
from torch import nn

import fedgsp

# A table as a group of hospitals might have it: each sees another mix of outcomes.
rng = np.random.default_rng(0)
table = Path(tempfile.mkdtemp()) / "patients.csv"
with table.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["age", "pressure", "marker", "outcome", "hospital"])
    for hospital in range(8):
        mix = rng.dirichlet([0.5] * 3)
        for outcome in rng.choice(3, size=80, p=mix):
            numbers = np.eye(3)[outcome] * 1.5 + rng.normal(size=3)
            writer.writerow([*np.round(numbers, 3), outcome, f"hospital {hospital}"])

data = fedgsp.load(f"csv:{table}:label=outcome,client=hospital")
print(fedgsp.inspect(data))


def net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small network for any number of columns and classes."""
    return nn.Sequential(nn.Linear(shape[0], 16), nn.ReLU(), nn.Linear(16, classes))


for method in ("fedavg", "fedgsp-balanced"):
    result = fedgsp.train(method, data, net, rounds=8, lr=0.05, workers=0)
    print(f"{method}: accuracy {result.accuracy:.3f}")
