"""The data set that comes with the package: made here when first asked for, nothing shipped, nothing downloaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.data.arrays import from_rows
from fedgsp.data.cache import get_or_build, save_array
from fedgsp.data.glyphs import VERSION, generate

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

GLYPH_CLASSES = 62


def load_glyphs(*, clients: int = 100, seed: int = 0, test: float = 0.1) -> FederatedData:
    """Procedural handwriting (`fedgsp.data.glyphs`): the same on every machine, cached."""

    def build(folder: Path) -> dict[str, Any]:
        made = generate(clients, seed)
        save_array(folder, "features", made.images)
        save_array(folder, "labels", made.labels)
        save_array(folder, "offsets", made.offsets)
        return {"kind": "glyphs", "clients": list(made.names), "clients_count": clients, "samples": len(made.labels)}

    if clients < 1:
        raise InputError(f"glyphs needs at least one client, not {clients}.")
    entry = get_or_build(f"glyphs-v{VERSION}-{clients}-{seed}", build)
    offsets = np.asarray(entry.array("offsets"))
    rows = [np.arange(offsets[k], offsets[k + 1]) for k in range(clients)]
    data = from_rows(
        entry.array("features"), entry.array("labels"), entry.meta["clients"], rows, GLYPH_CLASSES,
        test_fraction=test, data_seed=seed,
    )  # fmt: skip
    return replace(data, memo=entry.path)
