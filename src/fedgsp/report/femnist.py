"""Which FEMNIST is it? Several editions go by that name, and their counts are disputed: say exactly which one is at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedgsp.data.assemble import FEMNIST_CLASSES, FEMNIST_WRITER

if TYPE_CHECKING:
    from fedgsp.data import FederatedData


@dataclass(frozen=True)
class Edition:
    """An edition as somebody published it: writers (None where not stated) and samples."""

    name: str
    writers: int | None
    samples: int


EDITIONS = (
    Edition("LEAF's site", 3550, 805_263),
    Edition("LEAF's current scripts", 3597, 817_851),
    Edition("flwrlabs/femnist on the Hugging Face hub", None, 814_277),
    Edition("TensorFlow Federated's fed_emnist", 3400, 749_068),
)


def edition(data: FederatedData) -> str | None:
    """A sentence on which FEMNIST this is, or None where it is none."""
    if data.classes != FEMNIST_CLASSES or not data.clients or not all(FEMNIST_WRITER.fullmatch(n) for n in data.clients):
        return None
    here = f"{len(data):,} writers, {data.samples:,} samples"
    for known in EDITIONS:
        if known.samples == data.samples and known.writers in (None, len(data)):
            return f"FEMNIST, {here}: the counts of {known.name}."
    others = "; ".join(
        f"{known.name}: {f'{known.writers:,} / ' if known.writers else ''}{known.samples:,}" for known in EDITIONS
    )
    return f"FEMNIST, {here}: a part, or an edition of its own (known ones: {others})."
