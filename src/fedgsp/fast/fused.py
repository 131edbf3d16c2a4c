"""A module's compiled twin: trained and run where its parameters lie, without an optimiser.

Where the loss is all that a rule looks at, a whole epoch is one call. A rule that looks at outputs or features gets them batch
by batch, as leaves of a small graph of its own: what it makes of them (`Term`) is differentiated by torch, the rest, from the
gradients of outputs and features on, by the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.fast.compiled import CompiledLayers, Step, StoredSamples
from fedgsp.models.split import BatchOutputs

if TYPE_CHECKING:
    from fedgsp.core.native import Library
    from fedgsp.core.tensors import Tensors
    from fedgsp.fast.program import Halves, Program

Term = Callable[[BatchOutputs, torch.Tensor], torch.Tensor | None]
"""What is minimised beside the loss, a function of what is seen of a batch and of its labels; None for nothing."""


class FusedNet:
    """The twin of a whole model, in one part."""

    def __init__(self, model: nn.Module, program: Program, largest_batch: int, library: Library) -> None:
        self._weights = dict(model.named_parameters())
        self._prepare = program.prepare
        self._part = CompiledLayers(program, largest_batch, library)
        self.largest_batch, self._library = largest_batch, library
        self._still: CompiledLayers | None = None
        self._inputs = program.inputs
        self._samples: StoredSamples | None = None

    def reads(self, features: NDArray[Any], divisor: float) -> bool:
        """Whether the kernels can read a federation's samples where they are kept: then `train_rows` and `read` do."""
        if self._inputs is not None and StoredSamples.known(features):
            self._samples = StoredSamples(features, divisor, self._inputs, self._library)
        return self._samples is not None

    @property
    def standardises(self) -> bool:
        """Whether each sample gets mean 0 and deviation 1 as it is read."""
        return self._inputs is not None and self._inputs.least is not None

    def begin(self, step: Step) -> None:
        """Take the module's weights as they are now, for steps of this kind."""
        self._part.begin(self._weights, step)

    def end(self) -> bool:
        """Bring what the kernels keep in a layout of their own back into the module; whether all weights are finite."""
        return self._part.end()

    def ready(self, x: torch.Tensor) -> torch.Tensor:
        """Samples as the first layer takes them."""
        with torch.no_grad():
            return self._prepare(x).contiguous()

    def read(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Samples of these rows as the first layer takes them."""
        assert self._samples is not None
        return self._samples.read(rows)

    def train(self, x: torch.Tensor, y: torch.Tensor, size: int) -> float:
        """SGD over these samples in order, `size` a step; the sum of the losses met."""
        return self._part.train(self.ready(x), y.contiguous(), size)

    def train_rows(self, rows: NDArray[np.int64], y: NDArray[np.int64], size: int) -> float:
        """The same over the samples of these rows."""
        assert self._samples is not None
        return self._part.train_rows(self._samples, rows, y, size)

    def frozen(self, weights: Tensors, ready: torch.Tensor) -> torch.Tensor:
        """What this model with other weights would give: outputs, or features if those are looked at."""
        if self._still is None:
            self._still = CompiledLayers(self._part.program, self.largest_batch, self._library)
        kept = {name: tensor.contiguous() for name, tensor in weights.items()}
        self._still.begin(kept)
        return self._still.forward(ready)

    def step(self, ready: torch.Tensor, y: torch.Tensor, frozen: dict[str, torch.Tensor], term: Term) -> float:
        """One step on one batch; the sum of its losses."""
        outputs = self._part.forward(ready)
        sum_, slopes = self._part.loss(outputs, y)
        _differentiate(term(BatchOutputs(outputs.requires_grad_(), None, frozen), y))
        self._part.backward(_sum(slopes, outputs.grad), ready)
        return sum_

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The module's outputs, with the weights of the moment."""
        self._part.begin(self._weights)
        return self._part.forward(self._prepare(x).contiguous())


class FusedHalves(FusedNet):
    """The twin of a model in two parts, for rules that look at features or put something between."""

    def __init__(self, model: nn.Module, halves: Halves, largest_batch: int, library: Library) -> None:
        super().__init__(model, halves.lower, largest_batch, library)
        self._model, self._between = model, halves.between
        self._upper = CompiledLayers(halves.upper, largest_batch, library, deep=True)
        torchs = {id(p) for p in halves.between.parameters()} if halves.between is not None else set()
        self._loose = {name: p for name, p in self._weights.items() if id(p) in torchs}
        self._way = Step(0.0)

    def begin(self, step: Step) -> None:
        """Take the module's weights as they are now, for steps of this kind."""
        super().begin(step)
        self._upper.begin(self._weights, step)
        self._way = step

    def end(self) -> bool:
        """Bring what the kernels keep in a layout of their own back into the module; whether all weights are finite."""
        sound = [self._part.end(), self._upper.end(), *(bool(p.sum().isfinite()) for p in self._loose.values())]
        return all(sound)

    def train(self, x: torch.Tensor, y: torch.Tensor, size: int) -> float:
        """Only whole models are trained without a look at their features."""
        raise NotImplementedError

    def train_rows(self, rows: NDArray[np.int64], y: NDArray[np.int64], size: int) -> float:
        """Nor this way."""
        raise NotImplementedError

    def step(self, ready: torch.Tensor, y: torch.Tensor, frozen: dict[str, torch.Tensor], term: Term) -> float:
        """One step on one batch; the sum of its losses."""
        features = self._part.forward(ready).requires_grad_()
        passed = features if self._between is None else self._between(features, **frozen)
        into = passed.detach().contiguous()
        outputs = self._upper.forward(into)
        sum_, slopes = self._upper.loss(outputs, y)
        _differentiate(term(BatchOutputs(outputs.requires_grad_(), features, frozen), y))
        back = self._upper.backward(_sum(slopes, outputs.grad), into)
        assert back is not None
        if self._between is not None:
            passed.backward(back)
            self._step_between()
            assert features.grad is not None
            back = features.grad
        else:
            back = _sum(back, features.grad)
        self._part.backward(back.contiguous(), ready)
        return sum_

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The module's outputs, with the weights of the moment; the module itself knows what to put between its halves."""
        if self._between is not None:
            outputs: torch.Tensor = self._model(x)
            return outputs
        self._upper.begin(self._weights)
        return self._upper.forward(super().__call__(x))

    def _step_between(self) -> None:
        """The same step for the parameters that torch differentiates."""
        way = self._way
        with torch.no_grad():
            for name, parameter in self._loose.items():
                if parameter.grad is None:
                    continue
                gradient, parameter.grad = parameter.grad, None
                if way.decay or way.mu:
                    gradient = gradient.add(parameter, alpha=way.decay + way.mu)
                if way.anchor is not None:
                    gradient = gradient.sub(way.anchor[name], alpha=way.constant)
                parameter.sub_(gradient, alpha=way.lr)


def _differentiate(term: torch.Tensor | None) -> None:
    if term is not None and term.requires_grad:
        term.backward()  # type: ignore[no-untyped-call]


def _sum(slopes: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
    return slopes if more is None else slopes.add_(more)
