"""A model as a list of layers that the compiled kernels know, or the reason why it is none.

Known are networks that feed one layer's output to the next: convolutions (stride 1, zero padding), ReLU, max-pool, flatten,
linear. They are found by tracing (`torch.fx`), so it does not matter how the model is written down, as modules or as functions;
what happens to a batch before (`prepare`, see `models/split.py`) stays in torch. The trace is of the model in training mode,
and the operations that torch really performs (`models/operations.py`) must be those of the layers, in both modes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx, nn

from fedgsp.core.errors import InputError
from fedgsp.fast.layers import LINEAR, LayerReader, LayerSpec, Unknown
from fedgsp.fast.structure import oddity
from fedgsp.models.cnn import SplitNet, StandardisingNet
from fedgsp.models.operations import ARRANGES, Recorded, in_mode, own_randomness
from fedgsp.models.split import as_it_is, declared, halves_of

PERFORMED = ARRANGES | {
    f"aten.{name}.default" for name in ("convolution", "relu", "relu_", "max_pool2d_with_indices", "addmm", "mm", "t")
}
"""What torch does for the layers that are known."""


@dataclass(frozen=True)
class Inputs:
    """What `prepare` does, where the kernels can do it too: nothing, or each sample gets mean 0 and deviation 1.

    `least` is added to the deviation; None for nothing at all.
    """

    least: float | None = None


@dataclass(frozen=True)
class Program:
    """Layers in order, what happens to a batch before the first, and the shape of what the last gives for one sample."""

    layers: tuple[LayerSpec, ...]
    prepare: Callable[[torch.Tensor], torch.Tensor]
    shape: tuple[int, ...]
    inputs: Inputs | None = None


@dataclass(frozen=True)
class Halves:
    """The two halves of a model, and the module of torch that stands between them, if one does (see `models/split.py`)."""

    lower: Program
    upper: Program
    between: nn.Module | None


def program_of(model: nn.Module, example: torch.Tensor, verified: bool = False) -> Program:
    """The layers of a model for batches like `example` (at least one sample); raises `Unknown` with the reason.

    `verified`: it was made before for such a model, so it is not compared with what torch does once more.
    """
    _check_structure(model)
    with in_mode(model, training=True), own_randomness():
        prepare, body, prefixes = _before_and_body(model, example, verified)
        ready = _ready(prepare, example)
        layers, shape = _read(body, tuple(ready.shape[1:]), prefixes)
        _check_end(layers)
        _check_parameters(model, layers, None)
        if not verified:
            _check_performed(body, ready)
        return Program(layers, prepare, shape, _inputs(model, prepare, example))


def halves_program(model: nn.Module, example: torch.Tensor, verified: bool = False) -> Halves:
    """The same for the two halves that a model declares, one by one."""
    _check_structure(model)
    with in_mode(model, training=True), own_randomness():
        halves = declared(model)
        ready = _ready(halves.prepare, example)
        lower, shape = _read(nn.Sequential(halves.features), tuple(ready.shape[1:]), ("features",))
        upper, end = _read(nn.Sequential(halves.classifier), shape, ("classifier",))
        _check_end(upper)
        if not lower or upper[0].kind != LINEAR:
            raise Unknown("its features have no layer, or its classifier begins with another than a linear one")
        _check_parameters(model, (*lower, *upper), halves.between)
        if not verified:
            _check_performed(nn.Sequential(halves.features, halves.classifier), ready)
        return Halves(
            Program(lower, halves.prepare, shape, _inputs(model, halves.prepare, example)),
            Program(upper, as_it_is, end),
            halves.between,
        )


def _check_structure(model: nn.Module) -> None:
    found = oddity(model)
    if found is not None:
        raise Unknown(found)


def _check_performed(body: nn.Module, ready: torch.Tensor) -> None:
    """What was traced is all that happens, in training as in evaluation."""
    found = []
    for training in (True, False):
        with in_mode(body, training):
            found.append(Recorded(body, ready).names)
    odd = [name for name in found[0] if name not in PERFORMED]
    if odd:
        raise Unknown(f"it does more than its layers when it trains ({odd[0].removesuffix('.default')})")
    if found[0] != found[1]:
        raise Unknown("it does something else in training than in evaluation")


def _inputs(model: nn.Module, prepare: Callable[[torch.Tensor], torch.Tensor], example: torch.Tensor) -> Inputs | None:
    """What `prepare` does to samples, seen by its operations, and by what the model says (`standardises`)."""
    done = Recorded(prepare, example.clone())
    if done.only_arranges and torch.equal(done.output.flatten(1), example.flatten(1)):
        return Inputs()
    least = getattr(model, "standardises", None)
    if isinstance(least, float) and isinstance(model, StandardisingNet):
        ours = Recorded(lambda x: StandardisingNet.prepare(model, x), example.clone())
        if done.same_as(ours):
            return Inputs(least)
    return None


def _ready(prepare: Callable[[torch.Tensor], torch.Tensor], example: torch.Tensor) -> torch.Tensor:
    """The example as it is before the first layer, where each sample becomes that by itself."""
    done = Recorded(prepare, example.clone())
    if done.draws or done.looks:
        raise Unknown("what it does to a sample before the first layer is random or depends on the sample's values")
    ready: torch.Tensor = done.output
    with torch.no_grad():
        alone = torch.cat([prepare(example[i : i + 1].clone()) for i in range(len(example))])
    if not torch.allclose(ready, alone, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise Unknown("what it does to a sample before the first layer depends on the rest of the batch")
    if ready.dtype != torch.float32:
        raise Unknown("its inputs are not numbers but tokens")
    return ready


def _read(
    body: nn.Module, shape: tuple[int, ...], prefixes: tuple[str, ...]
) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:  # fmt: skip
    """(the layers of what is traced, the shape they end with)."""
    try:
        graph = fx.Tracer().trace(body)
    except Exception as error:
        raise Unknown(f"it cannot be traced ({type(error).__name__})") from error
    reader = LayerReader(dict(body.named_modules()), shape, prefixes)
    for node in graph.nodes:
        reader.read(node)
    return reader.finished(), reader.shape


def _check_end(layers: tuple[LayerSpec, ...]) -> None:
    if not layers or layers[-1].kind != LINEAR or layers[-1].relu:
        raise Unknown("its last layer is not linear")


def _check_parameters(model: nn.Module, layers: tuple[LayerSpec, ...], between: nn.Module | None) -> None:
    """Every parameter belongs to one layer (or to what torch does between the halves) and is trained."""
    used = [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
    parameters = dict(model.named_parameters(remove_duplicate=False))
    torchs = {id(p) for p in between.parameters()} if between is not None else set()
    ours = [name for name, p in parameters.items() if id(p) not in torchs]
    if sorted(used) != sorted(ours) or len({id(parameters[name]) for name in ours}) != len(used):
        raise Unknown("it has parameters outside its layers, or shared by several")
    if any(not p.requires_grad or p.dtype != torch.float32 for p in parameters.values()) or list(model.buffers()):
        raise Unknown("it has frozen parameters, buffers, or other numbers than float32")


def _before_and_body(
    model: nn.Module, example: torch.Tensor, verified: bool
) -> tuple[Callable[[torch.Tensor], torch.Tensor], nn.Module, tuple[str, ...]]:  # fmt: skip
    """(what happens before, what is traced, what its children are called in the model)."""
    if isinstance(getattr(model, "features", None), nn.Module) and isinstance(getattr(model, "classifier", None), nn.Module):
        try:
            ours = type(model) in (SplitNet, StandardisingNet)  # whose forward is just that
            halves = declared(model) if verified or ours else halves_of(model, example, "the fast path")
        except InputError as error:
            raise Unknown("its forward is not classifier(features(x)) in training and in evaluation") from error
        return halves.prepare, nn.Sequential(halves.features, halves.classifier), ("features", "classifier")
    return as_it_is, nn.Sequential(model), ("",)
