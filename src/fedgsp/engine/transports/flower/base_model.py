"""The frozen parameters of a model, at a site and at the server: never sent where the site has the same, once where it has not.

A model under adapters travels as its adapters only. The message names the rest by its digest. A site that has built something
else (other pretrained weights, another version of a library) asks for it; what it is sent is kept in its state under that
digest, for all messages and runs to come.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedgsp.core.files import write_whole
from fedgsp.core.tensors import FULL, digest
from fedgsp.engine.transports.flower.records import pack, unpack_like
from fedgsp.engine.transports.flower.wire import Refused
from fedgsp.models.state import frozen_tensors

if TYPE_CHECKING:
    from flwr.app import ArrayRecord
    from torch import nn

    from fedgsp.core.tensors import Tensors
    from fedgsp.engine.base import WorkerSetup

MOST_BASES = 3
"""How often a node is sent the frozen parameters in a run, whatever it says."""


class BaseSupply:
    """A model's frozen parameters, for nodes that lack them: most have them from where the model comes from."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._record: ArrayRecord | None = None
        self._given: Counter[int] = Counter()
        self._due: set[int] = set()

    @property
    def record(self) -> ArrayRecord:
        """They, as they are sent."""
        if self._record is None:
            self._record = pack(self._setup.frozen_base())
        return self._record

    def give(self, node: int) -> bool:
        """A node says that it lacks them; whether it will be sent them once more."""
        self._given[node] += 1
        if self._given[node] > MOST_BASES or not self.record:
            return False
        self._due.add(node)
        return True

    def due(self, node: int) -> bool:
        """Whether a node is to be sent them with the message that is composed now, once."""
        due = node in self._due
        self._due.discard(node)
        return due


def take_base(model: nn.Module, wanted: str, state: Path, sent: ArrayRecord) -> None:
    """See that a model's frozen parameters are those of the run.

    Args:
        model: As the site has built it; changed in place.
        wanted: The digest that they must have; "" where nothing is frozen.
        state: The site's folder for what it keeps.
        sent: What came with the message, if anything.

    Raises:
        Refused: They are others, and were not sent; or the model freezes something else.
    """
    own = frozen_tensors(model)
    if (digest(own) if own else "") == wanted:
        return
    if not own or not wanted:
        raise Refused("what of its model is frozen is not what the run's has frozen", for_good=True)
    file = state / f"base-{wanted}.safetensors"
    base = _sent(sent, own, wanted) if sent else _kept(file, wanted)
    if base is None:
        raise Refused("its model's frozen parameters are others than the run's", wants="base")
    with torch.no_grad():
        for name, tensor in own.items():
            if name not in base or base[name].shape != tensor.shape:
                raise Refused("what of its model is frozen is not what the run's has frozen", for_good=True)
            tensor.copy_(base[name])
    if sent:
        with suppress(OSError):  # then it is asked for again
            state.mkdir(parents=True, exist_ok=True)
            for older in state.glob("base-*.safetensors"):
                older.unlink()
            write_whole(file, save({name: tensor.contiguous() for name, tensor in base.items()}))


def _sent(sent: ArrayRecord, own: Tensors, wanted: str) -> Tensors:
    base = unpack_like(sent, own, FULL, "the frozen parameters", lambda name: False)
    if digest(base) != wanted:
        raise Refused("the frozen parameters that it was sent are not those that the run names", for_good=True)
    return base


def _kept(file: Path, wanted: str) -> Tensors | None:
    try:
        base = load(file.read_bytes())
    except (OSError, SafetensorError):
        return None
    return base if digest(base) == wanted else None
