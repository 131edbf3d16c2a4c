"""How objects below the room that draws get their pictures.

`result.plot()` and what a notebook shows of a federation are drawn in `fedgsp.report`, which knows all these objects. Imports
point downwards only, so the objects ask for it by name, when they are asked.
"""

from __future__ import annotations

import importlib
from typing import Any


def drawn(what: str, thing: object) -> Any:
    """What `fedgsp.report.notebook` makes of an object."""
    return getattr(importlib.import_module("fedgsp.report.notebook"), what)(thing)
