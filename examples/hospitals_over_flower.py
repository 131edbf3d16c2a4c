"""Three hospitals with rows of their own train one model over Flower: here on one machine, with TLS and a key for each node.

The same deployment on real machines: `fedgsp deploy init`, and each hospital names its own file (docs/deploy.md).
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fedgsp

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
with (folder / "patients.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["age", "pressure", "marker", "outcome", "hospital"])
    for hospital, mix in {"north": [0.7, 0.2, 0.1], "east": [0.1, 0.7, 0.2], "south": [0.2, 0.1, 0.7]}.items():
        for outcome in rng.choice(3, size=120, p=mix):
            writer.writerow([*np.round(np.eye(3)[outcome] * 2 + rng.normal(size=3), 3), outcome, hospital])

source = f"csv:{folder}/patients.csv:label=outcome,client=hospital"
command = [Path(sys.executable).with_name("fedgsp"), "deploy", "local", folder / "fed", "--nodes", "3", "--data", source]
subprocess.run([*command, "--method", "cwt", "--model", "linear", "--rounds", "3", "--quiet"], check=True)

(run,) = (folder / "fed" / "runs").iterdir()
reader = fedgsp.RunReader(run)
reader.read()
for line in reader.history:
    print(f"round {line['round']}: {line['clients']} hospitals, accuracy {line['accuracy']:.3f}")
print("the run over Flower is", reader.status)
