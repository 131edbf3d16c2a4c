"""Where a model's features end and its classifier begins: declared once by the model, used by Fusion, MMD and their like.

A model declares its split by having two submodules called `features` and `classifier`, such that

    model(x) == model.classifier(model.features(x))

in evaluation and in training: what stands between the halves (dropout, say) belongs to one of them, or it would be lost to
rules that use them one by one. Should something happen to x before (a channel axis is added, pixels are shifted), it goes into
a method `prepare(x)` without parameters: model(x) == model.classifier(model.features(model.prepare(x))). Every parameter
belongs to one of the two halves. `leaf_cnn` and `small_cnn` do so; a model of the user's own does it the same way:

    class Mine(nn.Module):
        def __init__(self, shape, classes):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
            self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(512, classes))

        def forward(self, x):
            return self.classifier(self.features(x))

What a rule puts between the halves (Fusion's operator) is a third module, `between`, which takes the features and, by name,
those of frozen extractors: model(x) == model.classifier(model.between(model.features(x), name=...)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from fedgsp.core.errors import InputError, refusal
from fedgsp.models.operations import Recorded, hooks_of, in_mode, own_randomness

FEATURES = "features."
"""What the names of a split model's feature tensors begin with."""

Level = Literal["loss", "logits", "features"]
"""How deep a rule looks into the model: at nothing but the loss, at the outputs, or at features and outputs."""


@dataclass
class BatchOutputs:
    """One batch as a rule sees it: the model's outputs, its features if the rule looks at those, and what frozen models with
    names of the rule's own make of the same samples (their features where the rule looks at features, else their outputs)."""

    outputs: torch.Tensor
    features: torch.Tensor | None = None
    frozen: dict[str, torch.Tensor] = field(default_factory=dict)

    def compared(self) -> torch.Tensor:
        """What stands against `frozen`: the features if they are looked at, else the outputs; flat (b, d)."""
        return (self.outputs if self.features is None else self.features).flatten(1)


@dataclass(frozen=True)
class ModelHalves:
    """The two halves of a model, what happens to a batch before the first, and what stands between them, if anything does."""

    prepare: Callable[[torch.Tensor], torch.Tensor]
    features: nn.Module
    classifier: nn.Module
    between: nn.Module | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """What the model gives."""
        outputs: torch.Tensor = self.classifier(self.features(self.prepare(x)))
        return outputs


def halves_of(model: nn.Module, example: torch.Tensor, who: str) -> ModelHalves:
    """The declared halves of a model, checked on an example batch; `who` needs them and is named where they are missing."""
    found = [getattr(model, name, None) for name in ("features", "classifier")]
    if not all(isinstance(half, nn.Module) for half in found):
        raise InputError(
            f"{who} needs a model that says where its features end: give {type(model).__name__} two submodules 'features' and "
            f"'classifier' with model(x) = classifier(features(x)), or use small_cnn or leaf_cnn."
        )
    outside = [n for n, _ in model.named_parameters() if not n.startswith((FEATURES, "classifier."))]
    if outside:
        raise InputError(
            f"{who} needs a model whose parameters all belong to 'features' or 'classifier'; '{outside[0]}' of "
            f"{type(model).__name__} does not."
        )
    if hooks_of(model):
        raise InputError(
            f"{who} runs the halves of {type(model).__name__} one by one, so the hook on the whole model would not be called; "
            f"put it on 'features' or 'classifier'."
        )
    halves = declared(model)
    _check_forward(model, halves, example, who)
    return halves


def declared(model: nn.Module) -> ModelHalves:
    """The halves that a model declares, taken at its word."""
    features, classifier, between = (getattr(model, name, None) for name in ("features", "classifier", "between"))
    assert isinstance(features, nn.Module)
    assert isinstance(classifier, nn.Module)
    prepare = getattr(model, "prepare", None)
    return ModelHalves(
        prepare if callable(prepare) else as_it_is, features, classifier, between if isinstance(between, nn.Module) else None
    )  # fmt: skip


def as_it_is(x: torch.Tensor) -> torch.Tensor:
    """What happens to a batch where nothing does."""
    return x


def _check_forward(model: nn.Module, halves: ModelHalves, example: torch.Tensor, who: str) -> None:
    """Both ways do the same operations to the same outputs, in evaluation and in training, where dropout acts."""
    pair = torch.cat([example, example])  # a batch norm cannot train on one sample
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}  # training may change running means
    for training, x in ((False, example), (True, pair)):
        try:
            with in_mode(model, training):
                recorded = []
                for call in (model, halves):
                    with own_randomness():
                        recorded.append(Recorded(call, x.clone()))
                    for name, buffer in model.named_buffers():
                        buffer.copy_(kept[name])
        except Exception as error:
            raise refusal(InputError, f"{who} cannot use the halves of {type(model).__name__} on this data", error) from error
        if not recorded[0].same_as(recorded[1]):
            raise InputError(
                f"{who} needs a model with model(x) = classifier(features(x)); {type(model).__name__} does something else in "
                f"forward{' when it trains' if training else ''} (what happens to x before the features goes into a method "
                f"'prepare', what happens behind them into one of the two halves)."
            )
