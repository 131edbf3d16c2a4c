"""What skew does to FedAvg and FedGSP: rounds to a target, and serial steps, which are what time is made of."""

import numpy as np

import fedgsp

TARGET = 0.5
pictures = fedgsp.load("glyphs:clients=40")
samples = (np.asarray(pictures.features, dtype=np.float32) / 255, np.asarray(pictures.labels))

for skew, how in {"even": fedgsp.IID(clients=40), "skewed": fedgsp.Dirichlet(clients=40, alpha=0.3)}.items():
    data = fedgsp.partition(samples, how)
    for method in ("fedavg", "fedgsp"):
        result = fedgsp.train(method, data, rounds=15, lr=0.05, target_accuracy=TARGET, stop_at_target=True, workers=0)
        last, steps = result.history[-1], sum(line["serial_steps"] for line in result.history)
        reached = f"in round {last['round']}" if last["accuracy"] >= TARGET else f"not in {last['round']} rounds"
        print(f"{skew:7s} {method:7s} {TARGET:.0%} {reached}, {steps} serial steps")
