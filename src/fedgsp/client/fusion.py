"""FedFusion (Yao et al. 2019): the features of the trained extractor are fused with those of a frozen reference extractor.

    f_l = E_l(x), f_g = E_g(x) (no gradient), both (b, C, ...); what the classifier sees is
    conv    F = W_c [f_l ; f_g]                    1x1 convolution 2C -> C with bias
    multi   F = gamma f_g + (1 - gamma) f_l        gamma: one free real number a channel
    single  the same with one gamma for all

E_l, the operator and the classifier are trained by the plain loss and are what is handed on; E_g is a copy of the extractor
that was handed over (or of the round's global one, `anchor`) and never travels with the model. gamma starts at 0, so the model
starts as FedAvg's; the convolution has torch's own initialisation, as in the authors' code, which costs some rounds at first.
The server's half (smoothing of gamma, which reference an evaluation uses) is `fedgsp.server.FusionServer`; without it a model
is evaluated with its own extractor as reference.

The model must declare its split (`fedgsp.models.split`). To tune: the learning rate, the operator. Traffic: the operator more
than FedAvg (8,256 numbers for leaf_cnn and conv); one more forward pass of the extractor.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import nn

from fedgsp.client.anchor import Anchored
from fedgsp.core.errors import InputError
from fedgsp.models.split import FEATURES, Level, ModelHalves, halves_of
from fedgsp.models.state import load_tensors

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.core.tensors import Tensors

Operator = Literal["conv", "multi", "single"]


class Blend(nn.Module):
    """gamma f_g + (1 - gamma) f_l with one gamma for each of `channels` channels (or one for all)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(channels))

    def forward(self, local: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """The fused map, shaped as the two."""
        gamma = self.gamma.reshape(1, -1, *[1] * (local.dim() - 2))
        return gamma * reference + (1 - gamma) * local


class Mix(nn.Module):
    """A 1x1 convolution of the two maps, local first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2 * channels, channels, 1)

    def forward(self, local: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """The fused map; whatever stands behind the channel axis is folded into one."""
        both = torch.cat([local, reference], dim=1)
        fused: torch.Tensor = self.conv(both.reshape(*both.shape[:2], -1))
        return fused.reshape(local.shape)


class FusionNet(nn.Module):
    """A split model with a fusion operator between its halves, and a reference extractor outside its state."""

    def __init__(self, halves: ModelHalves, operator: nn.Module) -> None:
        super().__init__()
        self.prepare = halves.prepare
        self.features = halves.features
        self.classifier = halves.classifier
        self.fusion = operator
        reference = copy.deepcopy(halves.features).eval().requires_grad_(False)
        self._outside = [reference]  # in a list, so that it is no part of the state that is handed on
        self.fuse_with_itself = True

    def refer_to(self, tensors: Tensors) -> None:
        """Freeze a reference extractor, given under the names it has in the model; without any the model is its own."""
        self.fuse_with_itself = not tensors
        if tensors:
            device = next(self.features.parameters()).device
            self._outside[0] = self._outside[0].to(device)
            load_tensors(self._outside[0], {name.removeprefix(FEATURES): t for name, t in tensors.items()})

    @property
    def between(self) -> nn.Module:
        """What stands between the halves: the operator, under the name that `fedgsp.models.split` has for it."""
        return self.fusion

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs of the classifier on the fused features."""
        x = self.prepare(x)
        local = self.features(x)
        with torch.no_grad():
            reference = local.detach() if self.fuse_with_itself else self._outside[0](x)
        outputs: torch.Tensor = self.classifier(self.fusion(local, reference))
        return outputs


@dataclass(frozen=True, kw_only=True)
class Fusion(Anchored):
    """SGD on a model whose features are fused with those of a frozen extractor.

    Args:
        operator: How features are fused: a 1x1 convolution, a weight a channel ("multi") or one weight ("single").
    """

    kind: ClassVar[str] = "fusion"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"multi": {"operator": "multi"}, "single": {"operator": "single"}}
    companion_server: ClassVar[str] = "fused"

    operator: Operator = "conv"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.operator not in get_args(Operator):
            raise InputError(f"the local rule 'fusion': operator must be conv, multi or single, not '{self.operator}'.")

    def wrap_model(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Put the operator between the model's halves."""
        halves = halves_of(model, example, "the local rule 'fusion'")
        with torch.inference_mode():
            maps = halves.features(halves.prepare(example))
        if maps.dim() < 2:
            raise InputError(f"the local rule 'fusion' needs features with a channel axis, not of shape {tuple(maps.shape)}.")
        channels = int(maps.shape[1])
        operator = Mix(channels) if self.operator == "conv" else Blend(channels if self.operator == "multi" else 1)
        return FusionNet(halves, operator)

    def begin(self, ctx: LocalContext) -> None:
        """Freeze the reference extractor."""
        ctx.frozen["reference"] = self.reference(ctx, FEATURES)
        self._net(ctx.model).refer_to(ctx.frozen["reference"])

    def looks_at(self) -> Level:
        """The operator works on features."""
        return "features"

    def before_evaluate(self, model: nn.Module, beside: Tensors) -> None:
        """Evaluate with the extractor that the server kept, or with the model's own."""
        self._net(model).refer_to(beside)

    @staticmethod
    def _net(model: nn.Module) -> FusionNet:
        assert isinstance(model, FusionNet)
        return model
