"""The same run on a Ray cluster and in this process: the same bits.

Without a cluster, Ray is started on this machine and stopped again. On one, say `"address": "auto"` (docs/ray.md); files for
Slurm, Kubernetes and `ray up` are in examples/ray.
"""

import fedgsp

data = fedgsp.load("glyphs:clients=20")
here = fedgsp.train("naive-gsp", data, "linear", rounds=2, workers=0)
there = fedgsp.train("naive-gsp", data, "linear", rounds=2, workers=1, engine={"name": "ray"})

print(f"accuracy here {here.accuracy:.4f}, on Ray {there.accuracy:.4f}")
print("same bits:", here.state.digest() == there.state.digest())
