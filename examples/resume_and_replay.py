"""A run that is stopped and gone on with ends in the same bits as one that never stopped; replay proves it."""

import tempfile
from pathlib import Path

import fedgsp

data = fedgsp.load("glyphs:clients=20")
folder = Path(tempfile.mkdtemp()) / "run"

fedgsp.train("scaffold", data, rounds=2, out=folder, workers=0)  # as if it had been stopped after two rounds
resumed = fedgsp.resume(folder, rounds=4, workers=2)
whole = fedgsp.train("scaffold", data, rounds=4, workers=0)
print("same bits as a run that never stopped:", resumed.state.digest() == whole.state.digest())
print("computed again and compared:", fedgsp.replay(folder, workers=0).differs is None)
print("files:", sorted(file.name for file in folder.iterdir())[:6], "...")
