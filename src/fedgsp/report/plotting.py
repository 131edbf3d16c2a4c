"""The optional drawing package, asked for in one place."""

from __future__ import annotations

from importlib.util import find_spec

from fedgsp.core.imports import need


def require_plotting() -> None:
    """Refuse before anything starts where matplotlib is missing."""
    need("matplotlib", "plot", "drawing a picture")


def can_plot() -> bool:
    """Whether pictures can be drawn here: where they are a bonus, tables do without."""
    return find_spec("matplotlib") is not None
