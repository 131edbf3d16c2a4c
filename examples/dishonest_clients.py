"""Two of twenty clients send the opposite of what they learnt, five times as large. Which server rule withstands them?"""

from dataclasses import replace

import fedgsp
from fedgsp.client.attacks import SignFlip
from fedgsp.server import GeometricMedian, Mean, TrimmedMean

data = fedgsp.load("glyphs:clients=20")
honest = replace(fedgsp.named("fedavg"), local=replace(fedgsp.named("fedavg").local, lr=0.05))
attack = SignFlip(lr=0.05, attackers=(3, 11), scale=5.0)

print(f"nobody attacks: {fedgsp.train(honest, data, rounds=6, workers=0).accuracy:.3f}")
for server in (Mean(), TrimmedMean(share=0.2), GeometricMedian()):
    result = fedgsp.train(replace(honest, local=attack, server=server), data, rounds=6, workers=0)
    print(f"{server.kind}: {result.accuracy:.3f}")
