"""The versions that produced a run's numbers."""

from __future__ import annotations

import platform

from fedgsp.core import __version__


def versions() -> dict[str, str]:
    """What produced the numbers."""
    import numpy
    import torch

    return {
        "fedgsp": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
