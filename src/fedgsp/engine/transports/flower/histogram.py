"""What a site says of its classes: exactly, with noise, or nothing; the site decides.

Noise is drawn once for a version of the data and kept: asked a hundred times, a site gives the same answer, so its epsilon is
spent once and not a hundred times. New data means a new draw (of new data). Another epsilon means another draw of the same
data, and what the two reveal adds up.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.privacy import private_counts

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.shard import Shard
    from fedgsp.engine.transports.flower.site import Site


def told_counts(site: Site, shard: Shard, counts: NDArray[np.int64]) -> list[int] | None:
    """The class counts of the training samples as far as the site tells them; None for not at all."""
    if site.histogram == "off" or shard.data.classes == 0:
        return None  # for regression the bins would have to be agreed on first
    if site.histogram == "exact":
        return [int(n) for n in counts]
    path = site.state / f"noised-{shard.version}.json"
    setting = [site.epsilon, site.delta, len(counts)]
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["setting"] == setting:
            return list(kept["counts"])
    noised = [int(n) for n in private_counts(counts[None, :], site.epsilon, site.delta)[0]]
    _write(path, json.dumps({"setting": setting, "counts": noised}))
    return noised


def _write(path: Path, text: str) -> None:
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(text)
    scratch.replace(path)
