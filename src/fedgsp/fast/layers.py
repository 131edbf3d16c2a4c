"""A module's layers as the kernels take them, read off its graph: convolutions with ReLU and pools, and linear layers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

CONV, LINEAR = 1, 2
LARGEST_POOL = 15
DENSE_WORK = 2_000_000
"""Multiplications a sample above which a convolution that no pool follows is left to torch: its gradient is not sparse."""


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


@dataclass
class LayerReader:
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
