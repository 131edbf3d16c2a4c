"""What a server believes of what a site says: bounds that hold before anything is used, whatever the message is.

A site that was let in may still be broken or hostile. So nothing here trusts a type, a length or a size: numbers are whole and
small enough to be added, texts short, metrics possible, tensors of the kind that the server handed out. What does not fit is
`Refused` with a sentence; the site is skipped and nothing of its message is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from flwr.app import ConfigRecord, RecordDict

from fedgsp.engine.transports.flower.records import FACTS, heard
from fedgsp.engine.transports.flower.update_guard import is_trained as is_trained
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

MOST_FACTS = 1_000_000
"""Characters of the facts in a site's message: an introduction has a number a class, all others a handful."""
MOST_DIMENSIONS = 8
MOST_VALUES = 2**28
"""Values of one sample."""
DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
SHARES = ("accuracy",)
"""Metrics that are 0 or 1 for a sample; all others are bounded as losses are."""
COUNTER_SLACK = 16
"""A counter may grow by so many for each step and each sample."""


@dataclass(frozen=True)
class SiteLimits:
    """What a server's settings allow a site to say of itself, and of a sample's loss."""

    samples: int = 10_000_000
    classes: int = 10_000
    sites: int = 100_000
    loss: float = 1e6


def site_facts(content: RecordDict) -> dict[str, Any]:
    """The facts of a site's message, unless they are far longer than any can be."""
    record = content.get(FACTS)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if isinstance(text, str) and len(text) > MOST_FACTS:
        raise Refused(f"its message has {len(text):,} characters, more than {MOST_FACTS:,}")
    try:
        return heard(content)
    except RecursionError as error:
        raise Refused("the message's facts are not JSON") from error


def site_sentence(cause: Any) -> str:
    """What a site says of itself, as one line of bounded length."""
    text = cause[:300] if isinstance(cause, str) else "it does not say why"
    return "".join(letter if letter.isprintable() else " " for letter in text)


def whole(value: Any, most: int, what: str, least: int = 0) -> int:
    """A whole number within bounds.

    Args:
        value: What the site says.
        most: The largest that is believed.
        what: What it is, for the sentence.
        least: The smallest.

    Returns:
        The same.

    Raises:
        Refused: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"refused: {what} is not a whole number")
    if not least <= value <= most:
        raise Refused(f"refused: {what} is {shown(value)}, and not from {least:,} to {most:,}")
    return value


def text(value: Any, most: int, what: str) -> str:
    """A printable text of 1 to `most` characters."""
    if not (isinstance(value, str) and 0 < len(value) <= most and value.isprintable()):
        raise Refused(f"refused: {what} is not a text of 1 to {most} printable characters")
    return value


def number(value: Any, what: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        raise Refused(f"refused: {what} is not a finite number")
    return float(value)


def shown(value: float) -> str:
    """A number in a few characters, however large."""
    if isinstance(value, int) and value.bit_length() > 60:
        return "a number of more than 60 bits"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def sample_shape(value: Any) -> tuple[int, ...]:
    """The shape of a sample, as an introduction has it."""
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        raise Refused(f"refused: its shape is not a list of at most {MOST_DIMENSIONS} numbers")
    shape = tuple(whole(n, MOST_VALUES, "a number of its shape", 1) for n in value)
    if math.prod(shape) > MOST_VALUES:
        raise Refused(f"refused: a sample of the shape {shape} would have more than {MOST_VALUES:,} values")
    return shape


def class_counts(value: Any, classes: int, train: int, limits: SiteLimits) -> tuple[int, ...] | None:
    """A histogram: a number a class at least, none too large, which add up to the training samples; None: it tells none."""
    if value is None:
        return None
    if not isinstance(value, list) or not classes <= len(value) <= limits.classes:
        raise Refused(f"refused: its histogram is not a list of at least {classes} and at most {limits.classes:,} counts")
    counts = tuple(whole(n, limits.samples, "a count of its histogram") for n in value)
    if sum(counts) != train:
        raise Refused(f"refused: its histogram adds up to {sum(counts):,}, and it announces {train:,} training samples")
    return counts


def check_loss(value: Any, samples: int, limits: SiteLimits, what: str) -> float:
    """A loss (or its sum over so many samples) within the bound for each sample."""
    loss = number(value, what)
    if abs(loss) > limits.loss * max(1, samples):
        raise Refused(
            f"refused: {what} is {loss:.3g}, beyond the bound of {limits.loss:g} a sample ([deploy] loss_bound); if all sites "
            f"say so, training has diverged"
        )
    return loss


def check_metric(name: str, value: Any, samples: int, limits: SiteLimits, what: str) -> float:
    """A metric (or its sum over so many samples) that can be: of a share 0 <= correct <= samples."""
    if name not in SHARES:
        return check_loss(value, samples, limits, what)
    found = number(value, what)
    if not 0 <= found <= samples:
        raise Refused(f"refused: {what} is {found:.3g} of {samples:,}, which cannot be")
    return found


def training_metrics(value: Any, wanted: Sequence[str], limits: SiteLimits) -> dict[str, float]:
    """The metrics of a hop, each a mean over its samples: those that the rule reports, and no others."""
    if not isinstance(value, dict):
        raise Refused("refused: it reports no metrics")
    for name in wanted:
        if name not in value:
            raise Refused(f"refused: it does not report its {name}")
    return {name: check_metric(name, value[name], 1, limits, f"its {name}") for name in wanted}


def scores(value: Any, sizes: Mapping[str, int], metrics: Sequence[str], limits: SiteLimits) -> dict[str, dict[str, float]]:
    """Sums over the samples of each part, as many as were announced."""
    if not isinstance(value, dict) or value.keys() != sizes.keys():
        raise Refused("refused: it did not score what it was asked to")
    found: dict[str, dict[str, float]] = {}
    for part, size in sizes.items():
        sums = value[part]
        if not isinstance(sums, dict) or sums.keys() != {"samples", "loss", *metrics}:
            raise Refused(f"refused: its scores of its {part} samples are not those that it was asked for")
        told = sums["samples"]
        if isinstance(told, bool) or not isinstance(told, int) or told != size:
            raise Refused(f"refused: its scores are not of the {size} {part} samples that it announced")
        names = {"loss": sums["loss"], **{name: sums[name] for name in metrics}}
        found[part] = {name: check_metric(name, sum_, size, limits, f"its {part} {name}") for name, sum_ in names.items()}
    return found


def check_untrained(after: Tensors, before: Tensors, trained: frozenset[str] | None, work: int, what: str) -> None:
    """Refuse what no honest step makes of tensors that nobody trains.

    A value that is not finite must have been there before (-inf in a mask); a whole number may have grown or shrunk by at most
    `COUNTER_SLACK` for each of `work`, the steps and samples of the hop. How far running means may move is the update guard's.
    """
    for name, tensor in after.items():
        if not tensor.numel() or tensor.dtype == torch.bool or is_trained(name, tensor, trained):
            continue
        old = before[name]
        if tensor.is_floating_point():
            odd = ~tensor.isfinite()
            if bool(odd.any()) and not torch.equal(tensor[odd], old[odd]):
                raise Refused(f"refused: {what} '{name}' has values that are not finite")
            continue
        most = COUNTER_SLACK * (work + 1)
        changed = tensor != old
        pairs = zip(tensor[changed].reshape(-1).tolist(), old[changed].reshape(-1).tolist(), strict=True)
        if any(abs(new - was) > most for new, was in pairs):
            raise Refused(f"refused: {what} '{name}' has counters that {work:,} steps and samples cannot have moved so far")
