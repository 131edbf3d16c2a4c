"""`fedgsp.sweep`: one method with every combination of some values, side by side on test samples.

For looking, not for choosing: whoever takes the best value from here has chosen it on test samples. `fedgsp.tune` chooses on
validation samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.study.comparison import Comparison, compare
from fedgsp.study.entries import Entry, read_method
from fedgsp.study.grid import Grid, parse_grid, points

ADVICE = "These are test samples: to choose a value, use tune, which looks at validation samples only."


def sweep(method: Entry, grid: Grid, **options: Any) -> Comparison:
    """Compare a method with itself over a grid of hyper-parameters.

    Args:
        method: A name, a `Method`, a config file, `package.module:METHOD`, or a run, which stands for its method.
        grid: The values, by name, as in {"planner.growth.alpha": [1, 2, 4]}, or NAME=VALUE,VALUE,... texts.
        **options: As for `fedgsp.compare`: data, model, task, rounds, seeds, workers, out and the others.

    Returns:
        The comparison; its methods are called by their values.

    Raises:
        InputError: The grid makes no sense, or something cannot be had.

    Example:
        >>> import fedgsp
        >>> found = fedgsp.sweep("fedavg", {"epochs": [1, 2]}, data="glyphs:clients=5", rounds=1, seeds=1, workers=0)
        >>> sorted(found.scores)
        ['epochs=1', 'epochs=2']
    """
    _, chosen = read_method(method, trust=options.get("trust", False))
    axes = parse_grid(grid, chosen)
    ranges = [axis.name for axis in axes if axis.within is not None]
    if ranges:
        raise InputError(f"a sweep has values for '{ranges[0]}', not a range.")
    entries = [replace(point.method, name=point.label) for point in points(axes, chosen)]
    found = compare(*entries, **{"command": "fedgsp.sweep", **options})
    return replace(found, findings=replace(found.findings, notes=[*found.findings.notes, ADVICE]))
