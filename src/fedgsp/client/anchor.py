"""Rules with a frozen reference: the model that Prox, MMD and Fusion hold the trained one against.

On a single client the reference is the model it was handed, which is the round's global one. In a chain the two differ, and a
rule says which it means: `anchor="handed"` (default) is the model that the client before handed on; `anchor="global"` is the
round's global model, which every client but the chain's first must then download beside it: those bytes are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError
from fedgsp.models.state import model_tensors

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.core.tensors import Tensors


@dataclass(frozen=True, kw_only=True)
class Anchored(SGD):
    """SGD with a frozen reference: `reference` gives its tensors.

    Args:
        anchor: The reference: the model that the client was handed, or the round's global one, which is then sent
            beside it.
    """

    anchor: Literal["handed", "global"] = "handed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.anchor not in ("handed", "global"):
            raise InputError(f"anchor must be 'handed' or 'global', not '{self.anchor}'.")

    def fetches(self) -> bool:
        """With the round's own model as anchor."""
        return self.anchor == "global"

    def reference(self, ctx: LocalContext, prefix: str = "") -> Tensors:
        """Copies of the reference's tensors whose names begin with `prefix`, on the device that trains."""
        if self.anchor == "global":
            found = ctx.fetch_global(prefix)
        else:
            found = {name: t for name, t in model_tensors(ctx.model).items() if name.startswith(prefix)}
        with torch.no_grad():
            return {name: tensor.detach().clone().to(ctx.device) for name, tensor in found.items()}
