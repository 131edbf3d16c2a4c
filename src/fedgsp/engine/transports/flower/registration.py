"""A site introduces itself: who it is, how much it holds, and of its classes what it chooses to tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedgsp.engine.transports.flower.histogram import told_counts, usable
from fedgsp.engine.transports.flower.run_spec import RunSpec
from fedgsp.engine.transports.flower.scoring_limits import check_validation
from fedgsp.engine.transports.flower.shard import Shard, open_shard
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.engine.transports.flower.site import Site


def introduce(site: Site, facts: dict[str, Any]) -> dict[str, Any]:
    """The answer to a `query.hello`."""
    run_spec = RunSpec.decode(facts.get("run"))
    run_spec.check_allowed(site)
    check_validation(run_spec, site)
    whole = open_shard(site)
    check_fits(run_spec, whole, site)
    shard = usable(site, whole)
    if run_spec.kernel.startswith("c-"):
        _check_kernel(run_spec.kernel)
    number = _number(facts.get("number"), site)
    data = carved(run_spec, shard, 0 if number is None else number)
    own = len(data) - 1
    counts = data.profiles().counts[own]
    return {
        "name": site.name,
        "number": site.number,
        "version": shard.version,
        "train": int(data.train.sizes[own]),
        "validation": int(data.validation.sizes[own]),
        "test": int(data.test.sizes[own]),
        "classes": shard.data.classes,
        "shape": list(shard.data.sample_shape),
        "dtype": str(shard.data.features.dtype),
        "divisor": shard.data.divisor,
        "counts": told_counts(site, whole, counts),
    }


def carved(run_spec: RunSpec, shard: Shard, number: int) -> FederatedData:
    """The site's samples as client `number`, with a validation part where the run wants one."""
    data = shard.placed(number, run_spec.classes)
    return data.with_validation(run_spec.validation, run_spec.data_seed) if run_spec.validation else data


def check_fits(run_spec: RunSpec, shard: Shard, site: Site) -> None:
    """Refuse a run about other samples than the site's."""
    if run_spec.shape is not None and run_spec.shape != shard.data.sample_shape:
        raise Refused(f"the site '{site.name}' has samples of shape {shard.data.sample_shape}, the run wants {run_spec.shape}")
    if run_spec.classes is not None and (shard.data.classes == 0) != (run_spec.classes == 0):
        raise Refused(f"the site '{site.name}' and the run do not agree whether targets are classes or real numbers")
    if run_spec.classes is not None and shard.data.classes > run_spec.classes:
        raise Refused(f"the site '{site.name}' has {shard.data.classes} classes, the run {run_spec.classes}")


def _check_kernel(name: str) -> None:
    """Refuse a run whose steps are made by kernels that this machine does not have: its bits would differ."""
    from fedgsp.fast.build import library

    found = library()
    if isinstance(found, str):
        raise Refused(f'the run\'s kernel {name} is not to be had there: {found}; set [run] fast = "off"', for_good=True)
    if found.name != name:
        raise Refused(f'the run\'s kernel is {name}, it has {found.name}; set [run] fast = "off"', for_good=True)


def _number(told: Any, site: Site) -> int | None:
    if told is not None and (isinstance(told, bool) or not isinstance(told, int) or not 0 <= told < 10_000_000):
        raise Refused("the message's client number is not one")
    return site.number if told is None else told
