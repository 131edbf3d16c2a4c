"""Which kernel trains a model: compiled, in torch with steps put off, or plain. Chosen once a run and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.fast.build import Library, library
from fedgsp.fast.fused import FusedHalves, FusedNet
from fedgsp.fast.lazy import large_linears
from fedgsp.fast.part import Part
from fedgsp.fast.program import Halves, Program, Unknown, halves_program, program_of
from fedgsp.models.split import declared

Mode = Literal["auto", "on", "off"]
CLOSE = 1e-4
"""How far the compiled outputs may be from torch's on the example, relative to the largest: rounding is far below this."""


@dataclass(frozen=True)
class Kernel:
    """`name` is recorded with the run: "plain", "lazy" (steps put off, in torch) or "c-..." (compiled); `why` is for people."""

    name: str
    why: str
    layers: tuple[str, ...] = ()

    def fused(self, model: nn.Module, example: torch.Tensor, batch_size: int, halves: bool = False) -> FusedNet | None:
        """The compiled twin of a module, in this process; None if this kernel has none.

        `halves`: in the two halves that the module declares, for a rule that looks at its features.
        """
        if not self.name.startswith("c-"):
            return None
        found = library()
        if isinstance(found, str):
            raise RuntimeError(f"the run's kernel {self.name} is not to be had in this process: {found}")
        if found.name != self.name:
            raise RuntimeError(f"the run's kernel is {self.name}, this process has {found.name}")
        return _twin(model, _program(model, example, halves), batch_size, found)


@dataclass(frozen=True)
class Obstacles:
    """Why a run cannot have a fast path at all, none that is compiled, or none that puts steps off (None: it can).

    `halves` is no obstacle but a condition: the kernels must know both halves of the model, since the rule looks at features.
    """

    any: str | None = None
    compiled: str | None = None
    lazy: str | None = None
    halves: bool = False


PLAIN = Kernel("plain", "plain PyTorch steps, as told")


def choose(
    mode: Mode, model: nn.Module, example: torch.Tensor, *, batch_size: int, device: str, obstacles: Obstacles
) -> Kernel:  # fmt: skip
    """The fastest kernel that trains this model to the same numbers; with "on", one that is fast, or a reason why not."""
    if mode == "off":
        return PLAIN
    kernel = _fastest(model, example, batch_size, device, obstacles)
    if mode == "on" and kernel.name == "plain":
        raise InputError(f"--fast on: there is no fast path for this run, because {kernel.why}; --fast auto does without.")
    return kernel


def _fastest(model: nn.Module, example: torch.Tensor, batch_size: int, device: str, obstacles: Obstacles) -> Kernel:
    if torch.device(device).type != "cpu":
        return Kernel("plain", f"it is for the CPU, and the run is on {device}")
    if obstacles.any is not None:
        return Kernel("plain", obstacles.any)
    found = _compiled(model, example, batch_size, obstacles)
    if isinstance(found, Library):
        return Kernel(found.name, "compiled kernels")
    if obstacles.lazy is not None:
        return Kernel("plain", f"{found}, and {obstacles.lazy}")
    layers = large_linears(model, example)
    if layers:
        return Kernel("lazy", f"steps of large linear layers put off, in torch ({found})", layers)
    return Kernel("plain", f"{found}, and it has no large linear layer")


def _compiled(model: nn.Module, example: torch.Tensor, batch_size: int, obstacles: Obstacles) -> Library | str:
    """The kernels if they can train this model, else why not."""
    if obstacles.compiled is not None:
        return obstacles.compiled
    try:
        program = _program(model, example, obstacles.halves)
    except Unknown as error:
        return f"the model is not a list of layers that the kernels know ({error})"
    found = library()
    if isinstance(found, Library) and _differs(model, program, example, batch_size, found):
        return "the compiled kernels do not give the model's outputs"
    return found


def _program(model: nn.Module, example: torch.Tensor, halves: bool) -> Program | Halves:
    return halves_program(model, example) if halves else program_of(model, example)


def _twin(model: nn.Module, program: Program | Halves, batch_size: int, found: Library) -> FusedNet:
    if isinstance(program, Halves):
        return FusedHalves(model, program, batch_size, found)
    return FusedNet(model, program, batch_size, found)


def _differs(model: nn.Module, program: Program | Halves, example: torch.Tensor, batch_size: int, found: Library) -> bool:
    """Whether the compiled forward pass gives something else than the model (it never should)."""
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        if isinstance(program, Halves):
            parts = declared(model)
            features = parts.features(parts.prepare(example))
            lower, upper = Part(program.lower, batch_size, found), Part(program.upper, batch_size, found)
            pairs = [
                (features, _run(lower, model, program.lower.prepare(example))),
                (parts.classifier(features), _run(upper, model, features)),
            ]
        else:
            pairs = [(model(example), FusedNet(model, program, batch_size, found)(example))]
    model.train(was_training)
    return not all(_close(*pair) for pair in pairs)


def _run(part: Part, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    part.begin(dict(model.named_parameters()))
    return part.forward(x.contiguous())


def _close(wanted: torch.Tensor, got: torch.Tensor) -> bool:
    return wanted.shape == got.shape and torch.allclose(wanted, got, rtol=0, atol=CLOSE * float(wanted.abs().max() + 1))
