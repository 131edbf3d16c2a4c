"""Which kernels could train a model: compiled, in torch with steps put off, or plain. One is chosen once a run and recorded.

What is said here follows from how model and rule are built. Whether a kernel really makes the steps that torch makes is tried
out on the run's own samples before it is taken (`fedgsp.client.kernel_check`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from fedgsp.core.machine import memory_bytes
from fedgsp.core.native import INSTALL_ONE, NO_COMPILER, Library
from fedgsp.fast.build import library
from fedgsp.fast.compiled import buffer_bytes
from fedgsp.fast.fused import FusedHalves, FusedNet
from fedgsp.fast.layers import Unknown
from fedgsp.fast.lazy import large_linears
from fedgsp.fast.program import Halves, Program, halves_program, program_of
from fedgsp.fast.structure import oddity

Mode = Literal["auto", "on", "off"]
LARGEST_SHARE = 0.25
"""What the buffers of all workers together may take of the machine's memory."""


@dataclass(frozen=True)
class Kernel:
    """How steps are made. `name` is recorded with the run: "plain", "lazy" (steps put off, in torch) or "c-..." (compiled).

    `why` is for people, `layers` are those whose steps are put off, `checked` is what the check on the run's samples found.
    """

    name: str
    why: str
    layers: tuple[str, ...] = ()
    checked: str = field(default="", compare=False)

    def said(self) -> str:
        """What is said of it in a run's first line."""
        if self.compiled:
            return "compiled steps"
        advice = f"; {INSTALL_ONE}" if NO_COMPILER in self.why else ""
        if self.layers:
            return "steps of large layers put off" + (f" ({NO_COMPILER}{advice})" if advice else "")
        return "plain PyTorch steps" + (f" (no fast path: {self.why}{advice})" if self.why else "")

    @property
    def compiled(self) -> bool:
        """Whether the kernels are machine code."""
        return self.name.startswith("c-")

    def fused(self, model: nn.Module, example: torch.Tensor, largest_batch: int, halves: bool = False) -> FusedNet | None:
        """The compiled twin of a module, in this process; None if this kernel has none.

        `halves`: in the two halves that the module declares, for a rule that looks at its features.
        """
        if not self.compiled:
            return None
        found = library()
        if isinstance(found, str):
            raise RuntimeError(f"the run's kernel {self.name} is not to be had in this process: {found}")
        if found.name != self.name:
            raise RuntimeError(f"the run's kernel is {self.name}, this process has {found.name}")
        program = _program(model, example, halves, verified=True)
        if isinstance(program, Halves):
            return FusedHalves(model, program, largest_batch, found)
        return FusedNet(model, program, largest_batch, found)


@dataclass(frozen=True)
class Obstacles:
    """Why a run cannot have a fast path at all, none that is compiled, or none that puts steps off (None: it can).

    `halves` is no obstacle but a condition: the kernels must know both halves of the model, since the rule looks at features.
    """

    any: str | None = None
    compiled: str | None = None
    lazy: str | None = None
    halves: bool = False


PLAIN = Kernel("plain", "")


def candidates(
    model: nn.Module,
    example: torch.Tensor,
    obstacles: Obstacles,
    *,
    largest_batch: int,
    workers: int = 1,
    device: str = "cpu",
) -> Iterator[Kernel | str]:
    """What could train this model faster than plain steps, as far as that can be told from how it is built.

    Kernels, the fastest first; in place of one that cannot be had, a text that says why.
    """
    reason = obstacles.any or oddity(model)
    if torch.device(device).type != "cpu":
        reason = f"the fast path is for the CPU, and the run is on {device}"
    if reason is not None:
        yield reason
        return
    compiled = _compiled(model, example, largest_batch, workers, obstacles)
    yield Kernel(compiled.name, "compiled kernels") if isinstance(compiled, Library) else compiled
    if obstacles.lazy is not None:
        yield obstacles.lazy
        return
    layers = large_linears(model, example)
    lazy = Kernel("lazy", "steps of large linear layers put off, in torch", layers)
    yield lazy if layers else "it has no large linear layer"


def _compiled(model: nn.Module, example: torch.Tensor, largest_batch: int, workers: int, obstacles: Obstacles) -> Library | str:
    """The kernels if they know this model, else why not."""
    if obstacles.compiled is not None:
        return obstacles.compiled
    try:
        program = _program(model, example, obstacles.halves)
    except Unknown as error:
        return f"the model is not a list of layers that the kernels know ({error})"
    found = library()
    if isinstance(found, str):
        return found
    needed = _bytes(program, largest_batch, found) * max(1, workers)
    if not 0 < needed <= LARGEST_SHARE * memory_bytes():
        return f"there is not enough memory for its buffers ({needed / 1e9:.1f} GB for batches of {largest_batch} samples)"
    return found


def _bytes(program: Program | Halves, largest_batch: int, found: Library) -> int:
    """With a second part for frozen models, which some rules have."""
    if isinstance(program, Halves):
        upper = buffer_bytes(program.upper, largest_batch, found, deep=True)
        return 2 * buffer_bytes(program.lower, largest_batch, found) + upper
    return 2 * buffer_bytes(program, largest_batch, found)


def _program(model: nn.Module, example: torch.Tensor, halves: bool, verified: bool = False) -> Program | Halves:
    return (halves_program if halves else program_of)(model, example, verified=verified)
