"""The clients of a run for a page: names, sizes, class counts, kinds of mixes and how far each is from the population."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.data.federated import REGRESSION_BINS
from fedgsp.plan.divergence import distributions, emd, pairwise_cpd
from fedgsp.report.client_clusters import kinds_of
from fedgsp.report.encode import packed

if TYPE_CHECKING:
    from fedgsp.run.clients import ClientFacts

FEMNIST_NAMES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The classes of FEMNIST, in the order of their numbers."""

MOST_NAMED = 20_000
MOST_COUNTED = 2_000_000
"""Of larger tables (clients x classes) a page holds no counts: groups are then drawn without their class mixes."""

MOST_PAIRED = 400
SKEW_STEPS = 10_000


def federation(facts: ClientFacts, names: Sequence[str]) -> dict[str, Any]:
    """What a page knows of the clients. `skew` is EMD to the population (0 to 2) in steps of 1/10000."""
    counts = facts.counts.astype(np.float64)
    present = counts.sum(axis=1) > 0
    whole = counts.sum(axis=0)
    skew = np.zeros(len(counts))
    if present.any():
        skew[present] = emd(distributions(counts[present]), distributions(whole))
    kinds = kinds_of(counts)
    shown = counts.size <= MOST_COUNTED
    return {
        "source": facts.source,
        "fingerprint": facts.fingerprint,
        "clients": len(counts),
        "trains": int(facts.trains.sum()),
        "heldOut": int(facts.held_out.sum()),
        "samples": int(facts.train.sum() + facts.validation.sum() + facts.test.sum()),
        "shape": list(facts.shape),
        "classes": facts.classes,
        "classNames": class_names(facts, counts.shape[1]),
        "names": list(names)[:MOST_NAMED],
        "train": packed(facts.train),
        "test": packed(facts.test),
        "counts": packed(facts.counts) if shown else None,
        "population": whole.tolist(),
        "skew": packed(np.round(skew * SKEW_STEPS)),
        "kindOf": packed(np.append(kinds.of, 255)),
        "kinds": [{"clients": size, "marks": list(marks)} for size, marks in zip(kinds.sizes, kinds.marks, strict=True)],
        "cpd": _cpd_of_clients(counts[present]),
        "meanSkew": float(np.average(skew, weights=counts.sum(axis=1))) if present.any() else 0.0,
    }


def class_names(facts: ClientFacts, count: int) -> list[str]:
    """Their names, or the letters of handwriting where it is that, else numbers; quantiles of the targets for regression."""
    if len(facts.class_names) == count:
        return list(facts.class_names)
    source = (facts.source or "").lower()
    if count == len(FEMNIST_NAMES) and (source.startswith("glyphs") or "femnist" in source):
        return list(FEMNIST_NAMES)
    if not facts.classes:
        return [f"tenth {k + 1}" if count == REGRESSION_BINS else f"part {k + 1} of {count}" for k in range(count)]
    return [str(k) for k in range(count)]


def _cpd_of_clients(counts: Any) -> list[float]:
    """Five numbers of a box over pairs of single clients: what groups are compared with."""
    chosen = counts[np.linspace(0, len(counts) - 1, min(len(counts), MOST_PAIRED)).astype(int)] if len(counts) else counts
    if len(chosen) < 2:
        return []
    return [float(f"{value:.4g}") for value in np.quantile(pairwise_cpd(distributions(chosen)), (0.0, 0.25, 0.5, 0.75, 1.0))]
