"""What a person should do about their data before training on it: one sentence each, most important first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.report.duplicates import Duplicates

SMALL = 10
SHOWN = 5


def suggestions(data: FederatedData, counts: NDArray[np.int64], repeated: Duplicates) -> Iterator[str]:
    """Go through what usually goes wrong."""
    if len(data.test.rows) == 0:
        yield "No client has a test sample: nothing can be evaluated; read the source with test=0.1."
    elif (lacking := int((data.test.sizes == 0).sum())) > 0:
        yield f"{_clients(lacking)} no test sample: their accuracy will not be known."
    if (idle := int((data.train.sizes == 0).sum())) > 0:
        yield f"{_clients(idle)} no training sample: hold them out or leave them out (unmatched=drop, min_samples=2)."
    if repeated.test_in_train:
        share = 100 * repeated.test_in_train / max(1, len(data.test.rows))
        yield f"{repeated.test_in_train} test samples ({share:.1f} %) are also training samples: accuracy will look too good."
    if repeated.conflicting:
        yield f"{repeated.conflicting} samples appear with more than one label."
    if repeated.within_clients:
        yield f"{repeated.within_clients} samples repeat another one of the same client."
    small = int((data.sizes < SMALL).sum())
    if small:
        yield f"{_clients(small)} fewer than {SMALL} samples; min_samples={SMALL} leaves them out."
    if not data.classes:
        return
    held = (counts > 0).sum(axis=0)
    if (missing := np.flatnonzero(held == 0)).size:
        yield f"Nobody has {_classes(missing)}: the model cannot learn it; classes={data.classes - len(missing)} may be meant."
    single = np.flatnonzero(held == 1)
    if single.size and len(data) > 1:
        yield f"Only one client has {_classes(single)}: what is learnt of it depends on when that client trains."
    trained = np.bincount(np.asarray(data.labels[data.train.rows]).astype(np.int64), minlength=data.classes)
    if (untrained := np.flatnonzero((trained == 0) & (held > 0))).size:
        yield f"There are test samples but no training samples of {_classes(untrained)}."


def _clients(count: int) -> str:
    return "1 client has" if count == 1 else f"{count} clients have"


def _classes(found: NDArray[np.int64]) -> str:
    some = ", ".join(map(str, found[:SHOWN].tolist()))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"class{'es' if len(found) > 1 else ''} {some}{more}"
