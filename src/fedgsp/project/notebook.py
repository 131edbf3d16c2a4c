"""The notebook of a new project, as cells: text cells begin with '#', all others are code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

CELLS: Sequence[str] = (
    "# An afternoon with fedgsp\nData inspected, a rule of one's own compared and tuned, and the model taken away.",
    "import fedgsp\nfrom model import network\nfrom rule import METHOD\n\ndata = fedgsp.load('glyphs:clients=20')\ndata",
    "fedgsp.inspect(data)",
    "data.plot()",
    "# Your method\nIt shows its parts; `rule.py` has the local rule.",
    "METHOD",
    "result = fedgsp.train(METHOD, data, network, rounds=5, workers=0)\nresult",
    "result.plot()",
    "# Against the others\nThe same data, model and seeds for everybody.",
    "found = fedgsp.compare('fedavg', METHOD, data=data, model=network, rounds=3, seeds=2, workers=0)\nfound",
    "# Tuned, on validation samples only",
    "tuned = fedgsp.tune(METHOD, {'lr': [0.02, 0.1]}, data=data, model=network, rounds=2, workers=0)\ntuned",
    "# The model, taken away",
    "import torch\n\nbest = fedgsp.train(tuned.method, data, network, rounds=5, workers=0)\n"
    "torch.save(best.model().state_dict(), 'model.pt')\nbest.score_name, best.score",
)


def as_notebook(cells: Sequence[str] = CELLS) -> str:
    """The text of an .ipynb file without outputs."""
    made: list[dict[str, Any]] = []
    for number, cell in enumerate(cells):
        kind = "markdown" if cell.startswith("#") else "code"
        extra: dict[str, Any] = {} if kind == "markdown" else {"execution_count": None, "outputs": []}
        made.append(
            {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": cell.splitlines(keepends=True), **extra}
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"
