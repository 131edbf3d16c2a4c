"""What clients that are not ours answer, checked: their arrays, their metrics, and what each counts for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from fedgsp.core.adding import added
from fedgsp.core.chain import Hop, HopReport
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors
    from fedgsp.engine.transports.flower.site_checks import SiteLimits


def at_most(report: HopReport, samples: int) -> HopReport:
    """A report that counts for so many samples at most; 0: for all that it says."""
    return replace(report, samples=min(report.samples, samples)) if samples else report


def report_of(hop: Hop, content: RecordDict, seconds: float, most: int, limits: SiteLimits) -> HopReport:
    """A client's metrics; `num-examples` is what it weighs, bounded by what it said it has."""
    metrics = content["metrics"]
    if not isinstance(metrics, MetricRecord):
        raise Refused("refused: it reports no metrics")
    examples = metrics.get("num-examples")
    if not isinstance(examples, (int, float)) or not 0 < examples <= most or examples != int(examples):
        raise Refused(f"refused: it reports {examples!r} as num-examples")
    numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}
    for name, value in numbers.items():
        if name != "num-examples" and not abs(value) <= limits.loss:
            raise Refused(f"refused: its metric '{name}' is {value:.3g}, beyond the bound of {limits.loss:g} (loss_bound)")
    return HopReport(hop.client, hop.index, hop.repeat, int(examples), 0, 0, 0, seconds, numbers)


def averaged(reports: Sequence[HopReport]) -> MetricRecord:
    """Means of what most clients report, over those that do, weighed by their examples."""
    if not reports:
        return MetricRecord()
    ordered = sorted(reports, key=lambda report: (report.client, report.hop))
    said = Counter(name for report in ordered for name in report.metrics)
    means = {}
    for name in sorted(name for name, times in said.items() if 2 * times > len(ordered) and name != "num-examples"):
        own = [report for report in ordered if name in report.metrics]
        means[name] = added(r.metrics[name] * r.samples for r in own) / sum(r.samples for r in own)
    return MetricRecord({**means, "num-examples": sum(report.samples for report in ordered)})


def tensors_of(record: ArrayRecord, what: str) -> Tensors:
    """Flower's arrays as tensors, finite; unpickling is out of the question."""
    found: Tensors = {}
    for name, array in record.items():
        tensor = torch.from_numpy(np.array(array.numpy()))
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise Refused(f"refused: {what} '{name}' has values that are not finite")
        found[name] = tensor
    return found


def arrays_of(tensors: Tensors) -> ArrayRecord:
    """Tensors as Flower's arrays."""
    return ArrayRecord({name: tensor.contiguous() for name, tensor in tensors.items()})
