"""From what the user says (`leaf_cnn`, `package.module:callable`, a callable, a module) to a way to build the model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedgsp.core.errors import InputError, did_you_mean, refusal
from fedgsp.core.imports import import_named
from fedgsp.core.tensors import Tensors, clone
from fedgsp.models.cnn import leaf_cnn, small_cnn
from fedgsp.models.flat import linear, mlp
from fedgsp.models.resnet import resnet18_gn
from fedgsp.models.sequences import char_lstm, tiny_transformer
from fedgsp.models.state import model_tensors
from fedgsp.models.transformers import understood

BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    made.__name__: made for made in (linear, mlp, small_cnn, leaf_cnn, resnet18_gn, char_lstm, tiny_transformer)
}
"""The models that go by a name. What is known of one stands in its function: what it takes, and how large it is."""


def no_tokens() -> int:
    """How many tokens there are where samples are none."""
    return 0


@dataclass(frozen=True)
class SampleKind:
    """What a model must fit: the samples and what is asked of them.

    Attributes:
        shape: The shape of a sample.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label: () for one number.
        vocabulary: Says how many tokens there are, 0 where samples are none; only asked if a model wants to know.
        padding: The token that fills short sequences up, if any.
    """

    shape: tuple[int, ...]
    classes: int
    targets: tuple[int, ...] = ()
    vocabulary: Callable[[], int] = no_tokens
    padding: int | None = None

    def accepted_by(self, factory: Callable[..., nn.Module]) -> dict[str, Any]:
        """What of this a factory has a parameter for."""
        try:
            wanted = inspect.signature(factory).parameters
        except (TypeError, ValueError):
            return {}
        known = {"shape": self.shape, "classes": self.classes, "targets": self.targets, "padding": self.padding}
        offered = {name: value for name, value in known.items() if name in wanted}
        return {**offered, "vocabulary": self.vocabulary()} if "vocabulary" in wanted else offered


@dataclass(frozen=True)
class FittingModel:
    """A named model that fits some samples: its name, what it is in a line, what goes in and out, and its parameters."""

    name: str
    summary: str
    shape: tuple[int, ...]
    outputs: int
    parameters: int


def fitting(kind: SampleKind) -> list[FittingModel]:
    """The named models that fit these samples, smallest first; none is really made.

    Args:
        kind: The samples.

    Returns:
        What each takes, gives and has.
    """
    found = []
    for name, factory in BUILT_IN.items():
        try:
            with torch.device("meta"):
                model = factory(**kind.accepted_by(factory))
        except ValueError:
            continue
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        size = sum(parameter.numel() for parameter in model.parameters())
        found.append(FittingModel(name, summary_of(factory), kind.shape, last.out_features, size))
    return sorted(found, key=lambda one: one.parameters)


def summary_of(factory: Callable[..., nn.Module]) -> str:
    """The first line of a model's docstring."""
    return (factory.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True)
class ModelSpec:
    """A model by name and the call that builds a fresh one, wherever it is needed (it travels by cloudpickle).

    Args:
        name: What the model is called.
        build: Makes a fresh one.
    """

    name: str
    build: Callable[[], nn.Module]


def resolve(
    model: str | Callable[..., nn.Module] | nn.Module,
    shape: tuple[int, ...],
    classes: int,
    targets: tuple[int, ...] = (),
    vocabulary: Callable[[], int] = no_tokens,
    padding: int | None = None,
) -> ModelSpec:
    """What a model's name, factory or module means for samples of this kind (`SampleKind`).

    A callable is given what it has a parameter for: `shape`, `classes`, `targets`, `vocabulary` (a number), `padding`.

    Args:
        model: A name of `BUILT_IN`, `package.module:callable`, a callable, or a module, of which copies are trained.
        shape: The shape of a sample.
        classes: How many classes.
        targets: The shape of one sample's label.
        vocabulary: Says how many tokens there are; only asked if the model wants to know.
        padding: The token that fills short sequences up, if any.

    Returns:
        The model's name, and the call that builds a fresh one.

    Raises:
        InputError: If there is no such model, or it cannot be built for this data.
    """
    if isinstance(model, nn.Module):
        return ModelSpec(type(model).__name__, lambda: understood(copy.deepcopy(model)))
    if isinstance(model, str):
        name, factory = model, BUILT_IN.get(model) or _imported(model)
    elif callable(model):
        name, factory = _name_of(model), model
    else:
        raise InputError(f"a model is a name, a callable or an nn.Module, not {type(model).__name__}.")
    kind = SampleKind(shape, classes, targets, vocabulary, padding)
    arguments = kind.accepted_by(factory)

    def build() -> nn.Module:
        built = factory(**arguments)
        if not isinstance(built, nn.Module):
            raise InputError(f"the model '{name}' returned {type(built).__name__}, not an nn.Module.")
        return understood(built)

    try:
        with torch.random.fork_rng(devices=[]):
            build()
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and factory in BUILT_IN.values():
            raise InputError(f"the model '{name}' cannot be built for this data: {error}; {_which_fit(kind)}.") from error
        raise refusal(InputError, f"the model '{name}' cannot be built for this data", error) from error
    return ModelSpec(name, build)


def initial_tensors(spec: ModelSpec, seed: int, equip: Callable[[nn.Module], nn.Module] = lambda m: m) -> Tensors:
    """The weights a run starts from.

    Args:
        spec: The model.
        seed: The seed they are drawn with; the caller's random state is not touched.
        equip: What a rule makes of the model before it is trained.

    Returns:
        The model's state by name, without parameters that are frozen.

    Raises:
        InputError: If nothing of the model can be trained.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = equip(spec.build())
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError(f"the model '{spec.name}' has no parameters that can be trained, so there is nothing to do.")
    return clone(model_tensors(module))


def load_initial(path: str | Path, like: Tensors) -> Tensors:
    """Weights from a .safetensors file, checked against the model's own names and shapes.

    Args:
        path: The file.
        like: The model's tensors.

    Returns:
        The weights in the model's types.

    Raises:
        InputError: If the file cannot be read or does not fit.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).exists():
        raise InputError(f"there is no weights file {path}.")
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}.") from error
    for name, tensor in like.items():
        if name not in found:
            raise InputError(f"{path} has no tensor '{name}', so it does not fit the model.")
        if found[name].shape != tensor.shape:
            raise InputError(
                f"{path}: tensor '{name}' has shape {tuple(found[name].shape)}, the model wants {tuple(tensor.shape)}."
            )
    return {name: found[name].to(tensor.dtype).contiguous() for name, tensor in like.items()}


def _imported(name: str) -> Callable[..., nn.Module]:
    if ":" not in name:
        raise InputError(
            f"unknown model '{name}': {did_you_mean(name, BUILT_IN)} A model of your own is spelled package.module:callable."
        )
    found: Callable[..., nn.Module] = import_named(name, "cannot import the model")
    if not callable(found):
        raise InputError(f"the model '{name}' is not callable.")
    return found


def _name_of(factory: Callable[..., nn.Module]) -> str:
    for name, known in BUILT_IN.items():
        if factory is known:
            return name
    module, label = getattr(factory, "__module__", "?"), getattr(factory, "__qualname__", repr(factory))
    return f"{module}:{label}"


def _which_fit(kind: SampleKind) -> str:
    names = [f"{one.name} ({one.parameters:,} parameters)" for one in fitting(kind)]
    return f"what fits: {', '.join(names)}" if names else "no named model fits, so give one of your own"
