"""What torch really does when a module is called: its operations one by one, as they are dispatched.

Looking at outputs alone misses what happens rarely (a random flip) or where values are zero. The list of operations does not:
dropout, a hook's arithmetic or a clamp show in it whatever the numbers are, and so does code that looks at values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedgsp.core.randomness import own_randomness

__all__ = ["ARRANGES", "READS_A_VALUE", "Recorded", "hooks_of", "in_mode", "own_randomness", "same_bits"]

READS_A_VALUE = ("aten._local_scalar_dense.default", "aten.is_nonzero.default", "aten.item.default", "aten.nonzero.default")
"""Operations by which Python code decides something by the numbers it sees: then another batch may go another way."""
ARRANGES = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default", "unsqueeze.default",
        "squeeze.default", "squeeze.dim", "squeeze.dims", "flatten.using_ints", "unflatten.int", "alias.default",
        "detach.default", "clone.default", "contiguous.default",
    )
)  # fmt: skip
"""Operations that change no value and no order of values, only the shape."""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down the name of every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.draws = False


def _dispatch(recorder: _Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    recorder.names.append(str(func))
    recorder.draws = recorder.draws or torch.Tag.nondeterministic_seeded in func.tags
    return func(*args, **(kwargs or {}))


_Recorder.__torch_dispatch__ = _dispatch  # type: ignore[assignment, method-assign]
"""Set here and not in the class, where torch would wrap it and import its compiler, which takes more than a second."""


class Recorded:
    """The operations of one call, what it gave, and whether it drew random numbers or looked at values."""

    def __init__(self, call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
        recorder = _Recorder()
        with torch.no_grad(), recorder:
            self.output = call(x)
        self.names = tuple(recorder.names)
        self.draws = recorder.draws
        self.looks = any(name in READS_A_VALUE for name in self.names)

    @property
    def only_arranges(self) -> bool:
        """Whether no value was changed."""
        return ARRANGES.issuperset(self.names)

    def same_as(self, other: Recorded) -> bool:
        """The same operations in the same order, to the same outputs (a NaN equals a NaN)."""
        return self.names == other.names and same_bits(self.output, other.output)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two outputs are the same tensor, value by value."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bool(torch.isclose(one, other, 0, 0, equal_nan=True).all())


def hooks_of(module: nn.Module) -> bool:
    """Whether anything is called before or after the module's forward or backward pass."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind, None) for kind in kinds)


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """A module in training or evaluation mode; afterwards every submodule is in the mode it was in."""
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before.items():
            module.training = mode
