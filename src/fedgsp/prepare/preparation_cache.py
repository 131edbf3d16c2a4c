"""One preparation for many runs: those who try seeds or the values of a grid would else do the same work for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData
    from fedgsp.prepare.preparation import Preparation, Prepared


class Once:
    """Keeps what was prepared last: preparations are pure functions, so the same arguments give the same again."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Any, ...], Prepared] | None = None

    def prepare(self, how: Preparation, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """As `how.prepare`, which is asked only if it was not the last to be asked this."""
        asked = (how, data.fingerprint, data.source, clients.tobytes(), data_seed)
        if self._last is None or self._last[0] != asked:
            self._last = None  # not two sets of data in memory at once
            self._last = asked, how.prepare(data, clients, data_seed)
        return self._last[1]
