"""Where the package keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_root() -> Path:
    """Where prepared data and compiled code live: $FEDGSP_CACHE, else the user's cache folder."""
    chosen = os.environ.get("FEDGSP_CACHE")
    return Path(chosen) if chosen else user_cache_path("fedgsp", appauthor=False)
