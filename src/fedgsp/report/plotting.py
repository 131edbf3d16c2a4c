"""The optional drawing package, asked for in one place."""

from __future__ import annotations

from fedgsp.data.extras import need


def require_plotting() -> None:
    """Refuse before anything starts where matplotlib is missing."""
    need("matplotlib", "plot", "drawing a picture")
