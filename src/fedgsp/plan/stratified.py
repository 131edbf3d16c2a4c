"""`Stratified`: clients ranked by how typical they are, each rank dealt out to all groups. Cheap, and better than chance.

The authors' own program does nearly this where the paper says "randomly assigned": group i mod f of a list sorted by cosine
score, its shuffle commented out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.groupers import Counts, EvenGroups, require_enough_clients


@dataclass(frozen=True)
class Stratified(EvenGroups):
    """Clients sorted by the cosine between their counts and the population's; each f in a row go to the f groups at random.

    Sizes differ by at most one and everybody is in a group.
    """

    kind: ClassVar[str] = "stratified"

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,); clients that are equally typical are in random order."""
        clients = len(counts)
        require_enough_clients(clients, n_groups)
        population = counts.sum(axis=0, dtype=np.float64)
        lengths = np.sqrt(np.einsum("kf,kf->k", counts, counts, dtype=np.float64))
        cosine = (counts @ population) / np.where(lengths > 0, lengths, 1.0)
        shuffled = rng.permutation(clients)
        order = shuffled[np.argsort(cosine[shuffled], kind="stable")]
        length = -(-clients // n_groups)
        decks = rng.permuted(np.tile(np.arange(n_groups, dtype=np.int64), (length, 1)), axis=1)
        labels = np.empty(clients, dtype=np.int64)
        labels[order] = decks.ravel()[:clients]
        return labels
