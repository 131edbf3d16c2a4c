"""A model as a list of layers that the compiled kernels know, or the reason why it is none.

Known are networks that feed one layer's output to the next: convolutions (stride 1, zero padding), ReLU, max-pool, flatten,
linear. They are found by tracing (`torch.fx`), so it does not matter how the model is written down, as modules or as functions;
what happens to a batch before (`prepare`, see `models/split.py`) stays in torch. The trace is of the model in training mode,
and the operations that torch really performs (`models/operations.py`) must be those of the layers, in both modes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from fedgsp.core.errors import InputError
from fedgsp.fast.structure import oddity
from fedgsp.models.cnn import SplitNet, StandardisingNet
from fedgsp.models.operations import ARRANGES, Recorded, in_mode, own_randomness
from fedgsp.models.split import as_it_is, declared, halves_of

CONV, LINEAR = 1, 2
LARGEST_POOL = 15
DENSE_WORK = 2_000_000
"""Multiplications a sample above which a convolution that no pool follows is left to torch: its gradient is not sparse."""
PERFORMED = ARRANGES | {
    f"aten.{name}.default" for name in ("convolution", "relu", "relu_", "max_pool2d_with_indices", "addmm", "mm", "t")
}
"""What torch does for the layers that are known."""


class Unknown(Exception):
    """The model is not a list of known layers; the text says why."""


@dataclass(frozen=True)
class LayerSpec:
    """One layer, as `kernels.c` wants it."""

    kind: int
    cin: int
    cout: int
    weight: str
    bias: str | None
    kernel: tuple[int, int] = (0, 0)
    padding: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)
    relu: bool = False
    pool: int = 1

    def numbers(self) -> list[int]:
        """The fields of the C struct."""
        return [
            self.kind, self.cin, self.cout, *self.kernel, *self.padding, *self.size,
            int(self.relu), self.pool, int(self.bias is not None),
        ]  # fmt: skip


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
    reader = _Reader(dict(body.named_modules()), shape, prefixes)
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


@dataclass
class _Reader:
    """Walks a traced graph and keeps the shape of one sample."""

    modules: dict[str, nn.Module]
    shape: tuple[int, ...]
    prefixes: tuple[str, ...]
    layers: list[LayerSpec] = field(default_factory=list)
    last: fx.Node | None = None

    def read(self, node: fx.Node) -> None:
        """Take in one node of the chain."""
        if node.op == "placeholder":
            if self.last is not None:
                raise Unknown("its forward takes more than one input")
            self.last = node
            return
        inputs = node.all_input_nodes
        if inputs != [self.last] or (self.last is not None and len(self.last.users) != 1):
            raise Unknown("a layer's output does not simply go to the next layer")
        self.last = node
        if node.op == "output":
            if node.args[0] is not inputs[0]:
                raise Unknown("it gives more than one output")
        elif node.op == "call_module":
            self._module(str(node.target), self.modules[str(node.target)])
        else:
            self._call(node)

    def finished(self) -> tuple[LayerSpec, ...]:
        """The layers, each checked in its place."""
        for number, layer in enumerate(self.layers):
            if layer.kind == CONV:
                (kh, kw), (h, w) = layer.kernel, layer.size
                work = kh * kw * h * w * layer.cin * layer.cout
                if number and layer.pool == 1 and work > DENSE_WORK:
                    raise Unknown("it has a large convolution that no pool follows")
        return tuple(self.layers)

    def _module(self, target: str, module: nn.Module) -> None:
        if type(module) is nn.Conv2d:
            self._conv(target, module)
        elif type(module) is nn.Linear:
            self._linear(target, module)
        elif type(module) is nn.ReLU:
            self._relu()
        elif type(module) is nn.MaxPool2d:
            self._pool(module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
        elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            self._flatten()
        elif type(module) is not nn.Identity:
            raise Unknown(f"it has a layer of kind {type(module).__name__}")

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        rest, named = list(node.args[1:]), dict(node.kwargs)
        if target in (torch.relu, functional.relu, "relu") and not rest and set(named) <= {"inplace"}:
            self._relu()
        elif target in (torch.unsqueeze, "unsqueeze") and [*rest, *named.values()] == [1] and len(self.shape) == 2:
            self._channel()
        elif target in (torch.flatten, "flatten") and [*rest, *named.values()] in ([1], [1, -1]):
            self._flatten()
        elif target in (functional.max_pool2d, torch.max_pool2d):
            names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
            given = {**dict(zip(names, rest, strict=False)), **named}
            self._pool(
                given.get("kernel_size"), given.get("stride"), given.get("padding", 0), given.get("dilation", 1),
                bool(given.get("ceil_mode", False)),
            )  # fmt: skip
        else:
            name = target if isinstance(target, str) else getattr(target, "__name__", target)
            raise Unknown(f"it calls {name}")

    def _name(self, target: str) -> str:
        """The beginning of its parameters' names in the model itself: in the traced body its parts are children 0, 1, ..."""
        head, _, tail = target.partition(".")
        whole = ".".join(filter(None, (self.prefixes[int(head)], tail)))
        return f"{whole}." if whole else ""

    def _conv(self, target: str, module: nn.Conv2d) -> None:
        padding = module.padding
        plain = module.stride == (1, 1) and module.dilation == (1, 1) and module.groups == 1 and module.padding_mode == "zeros"
        if not plain or isinstance(padding, str) or len(self.shape) != 3 or any(layer.kind != CONV for layer in self.layers):
            raise Unknown("it has a convolution with a stride, groups, dilation or other padding")
        _, h, w = self.shape
        size = tuple(n + 2 * p - k + 1 for n, p, k in zip((h, w), padding, module.kernel_size, strict=True))
        name = self._name(target)
        self.layers.append(
            LayerSpec(
                CONV, module.in_channels, module.out_channels, f"{name}weight", None if module.bias is None else f"{name}bias",
                (module.kernel_size[0], module.kernel_size[1]), (padding[0], padding[1]), (h, w),
            )
        )  # fmt: skip
        self.shape = (module.out_channels, *size)

    def _linear(self, target: str, module: nn.Linear) -> None:
        if len(self.shape) != 1:
            raise Unknown("it has a linear layer on inputs that are not flat")
        name = self._name(target)
        bias = f"{name}bias" if module.bias is not None else None
        self.layers.append(LayerSpec(LINEAR, module.in_features, module.out_features, f"{name}weight", bias))
        self.shape = (module.out_features,)

    def _relu(self) -> None:
        if not self.layers:
            raise Unknown("it begins with a ReLU")
        self.layers[-1] = replace(self.layers[-1], relu=True)

    def _pool(self, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> None:
        sizes = {*_both(kernel), *_both(kernel if stride is None else stride)}
        odd = _both(padding) != (0, 0) or _both(dilation) != (1, 1) or ceil or len(sizes) != 1
        if odd or not self.layers or self.layers[-1].kind != CONV or self.layers[-1].pool != 1 or len(self.shape) != 3:
            raise Unknown("it has a pool of another kind than non-overlapping squares behind a convolution")
        pool = int(sizes.pop())
        if not 1 <= pool <= LARGEST_POOL:
            raise Unknown("it has a very large pool")
        self.layers[-1] = replace(self.layers[-1], pool=pool)
        self.shape = (self.shape[0], self.shape[1] // pool, self.shape[2] // pool)

    def _channel(self) -> None:
        """Grey images that come without a channel axis."""
        if self.layers:
            raise Unknown("it adds an axis between its layers")
        self.shape = (1, *self.shape)

    def _flatten(self) -> None:
        flat = 1
        for size in self.shape:
            flat *= size
        self.shape = (flat,)


def _both(value: Any) -> tuple[Any, Any]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)
