"""What a site says of its classes and of its sizes: exactly, with noise, or (of classes) nothing; the site decides.

`noised` protects one sample of the site: added or removed, in whatever part it is. One training sample changes one class count
and the size of its part by one, so the sensitivity of (counts, sizes) is 2 in L1 and the root of 2 in L2. A site uses as many
samples of each part as its noised size says, the first ones, and never more than it has; so its weight, its steps and its
scores say no more of its true size than that number does. To be below the true size but for a share of delta, a noised size is
lowered by a margin (`docs/security.md` has the figures).

One draw belongs to one set of samples, whatever the order in which they lie, how they are split, the version they have or the
width that a server asks for; it is kept in the site's state, and asking again gives it again. Other samples, or another
epsilon, need another draw, and what draws reveal adds up: the ledger `privacy.json` does so, and refuses at the site's limit.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.data.federated import SPLITS, Split
from fedgsp.engine.transports.flower.wire import Refused
from fedgsp.plan.privacy import gaussian_variance, private_vector

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.shard import Shard
    from fedgsp.engine.transports.flower.site import Site

LEDGER = "privacy.json"
L1, L2 = 2.0, math.sqrt(2.0)
"""By how much one sample, more or less, changes class counts and sizes together."""
LAPLACE_TAILS = 1e-9
"""With delta = 0, how often a size may still be limited by the true one."""


def told_counts(site: Site, shard: Shard, counts: NDArray[np.int64]) -> list[int] | None:
    """The class counts of the training samples as far as the site tells them; None for not at all.

    Args:
        site: The site.
        shard: Its samples, all of them.
        counts: The true counts of those that it trains on, as wide as the server asks for.

    Returns:
        Counts of that width, which add up to as many samples.

    Raises:
        Refused: The site's limit does not allow another draw.
    """
    if site.histogram == "off" or shard.data.classes == 0:
        return None  # for regression the bins would have to be agreed on first
    if site.histogram == "exact":
        return [int(n) for n in counts]
    drawn = np.zeros(len(counts), dtype=np.int64)
    noised = draw(site, shard)["counts"][: len(counts)]
    drawn[: len(noised)] = np.maximum(noised, 0)
    return shared_out(drawn, int(counts.sum()))


def usable(site: Site, shard: Shard) -> Shard:
    """The samples that the site uses: all, or where sizes are noised as many as the draw says."""
    if site.histogram != "noised":
        return shard
    sizes = draw(site, shard)["sizes"]
    parts: dict[str, Any] = {part: Split.of([getattr(shard.data, part).rows[: sizes[part]]]) for part in SPLITS}
    return replace(shard, data=replace(shard.data, **parts))


def draw(site: Site, shard: Shard) -> dict[str, Any]:
    """The one draw for this set of samples: `counts` (raw) and `sizes`; a new one is paid for in the ledger.

    Args:
        site: The site, whose `epsilon`, `delta` and `epsilon_limit` count.
        shard: Its samples.

    Returns:
        The entry of the ledger.

    Raises:
        Refused: The limit does not allow another draw.
    """
    which = _same_set(site, shard)
    with locked(site.state / LEDGER) as ledger:
        draws = ledger.setdefault("draws", [])
        for kept in draws:
            if kept["set"] == which and (kept["epsilon"], kept["delta"]) == (site.epsilon, site.delta):
                return dict(kept)
        spent = spent_epsilon(draws)
        if spent + site.epsilon > site.epsilon_limit * (1 + 1e-9):
            raise Refused(
                f"the site '{site.name}' has other samples than before, and its privacy limit allows no other draw of its "
                f"histogram (epsilon {spent:g} of {site.epsilon_limit:g} is spent, {site.epsilon:g} would be added)",
                for_good=True,
            )
        fresh = {"set": which, "epsilon": site.epsilon, "delta": site.delta, **_drawn(site, shard)}
        draws.append(fresh)
    return fresh


def spent_epsilon(draws: Sequence[dict[str, Any]]) -> float:
    """What draws reveal together: epsilons (and deltas) add up."""
    return math.fsum(kept["epsilon"] for kept in draws)


def margin(epsilon: float, delta: float) -> int:
    """How many samples fewer a size is told than the noise alone would say, so that it is below the true one."""
    if delta == 0:
        return math.ceil(L1 / epsilon * math.log(len(SPLITS) / LAPLACE_TAILS))
    deviation = L2 * math.sqrt(gaussian_variance(epsilon, delta / 2))
    return math.ceil(deviation * math.sqrt(2 * math.log(2 * len(SPLITS) / delta)))


def shared_out(weights: NDArray[np.int64], total: int) -> list[int]:
    """Whole numbers in the proportion of `weights` that add up to `total`: each rounded down, the largest rests up.

    Example:
        >>> shared_out(np.array([1, 1, 1]), 4), shared_out(np.array([0, 0]), 3)
        ([2, 1, 1], [2, 1])
    """
    known = weights if weights.sum() else np.ones_like(weights)
    exact = [int(weight) * total for weight in known]
    whole, rest = divmod_all(exact, int(known.sum()))
    for place in sorted(range(len(rest)), key=lambda k: (-rest[k], k))[: total - sum(whole)]:
        whole[place] += 1
    return whole


def divmod_all(values: Sequence[int], by: int) -> tuple[list[int], list[int]]:
    """Quotients and rests."""
    pairs = [divmod(value, by) for value in values]
    return [whole for whole, _ in pairs], [rest for _, rest in pairs]


@contextmanager
def locked(path: Path) -> Iterator[dict[str, Any]]:
    """A file of the site's state as a table that no other process changes meanwhile; written whole at the end."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"schema": 1}
        before = json.dumps(table)
        yield table
        if json.dumps(table) == before:
            return
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        with scratch.open("w") as file:
            json.dump(table, file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)


def _drawn(site: Site, shard: Shard) -> dict[str, Any]:
    data, delta = shard.data, site.delta
    sizes = [int(getattr(data, part).sizes[0]) for part in SPLITS]
    counts = data.profiles().counts[0] if data.classes else np.empty(0, dtype=np.int64)
    values = np.concatenate([counts, sizes]).astype(np.int64)
    noised = private_vector(values, site.epsilon, delta / 2, l1=L1, l2=L2).tolist()
    lower = margin(site.epsilon, delta)
    told = [min(max(0, n - lower), true) for n, true in zip(noised[len(counts) :], sizes, strict=True)]
    return {"counts": noised[: len(counts)], "sizes": dict(zip(SPLITS, told, strict=True))}


def _same_set(site: Site, shard: Shard) -> str:
    """Names a set of samples, whatever their order and the parts they are in; worked out once for a version of the data."""
    remembered = site.state / f"set-{shard.version}"
    with suppress(OSError):
        known = remembered.read_text()
        if len(known) == 64:
            return known
    data = shard.data
    rows = np.concatenate([getattr(data, part).rows for part in SPLITS])
    own = sorted(hashlib.sha256(data.features[row].tobytes() + data.labels[row].tobytes()).digest() for row in rows)
    sha = hashlib.sha256(b"".join(own))
    named = hmac.new((site.state / "secret").read_bytes(), sha.digest(), "sha256").hexdigest()
    scratch = remembered.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(named)
    scratch.replace(remembered)
    return named
