"""FD, federated distillation (Jeong et al. 2018): clients keep their models and exchange what they say of each label.

Client k trains its OWN model, which never leaves it. Over a hop's batches it averages its logits label by label:

    t_k,c = mean of logits over its samples of label c            sent up (F x F), with a mark for every label it has
    tbar_k,c = (S_c - t_k,c) / (M_c - 1)                          S_c, M_c: sum and number of the tables of the last round;
                                                                  k's own is taken out where it was among them
    loss = CE + gamma D(logits(x), tbar_k,y)                      for samples whose label somebody else reported

D is the cross-entropy between softmax(tbar) and the softmax of the logits (`match="cross-entropy"`) or the mean squared
difference of the logits ("mse", as re-implementations have it). M_c counts those who reported c, not all who took part: with
many labels few have each. gamma = 0, or one client, is training alone, to the bit.

There is NO global model: every client is evaluated on its own, clients that have not trained yet on the weights all begin with.
Such figures are about something else than those of one model. Traffic: 4 F^2 + F bytes up and 4 F^2 + 4 F + 8 down a hop,
30.9 kB for 62 labels. A client keeps its model and its last table: |w| + 4 F^2 on its disk.

To tune: gamma over 0.01, 0.1, 1; lr as for FedAvg.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.state import Yields
from fedgsp.models.state import load_tensors, model_tensors

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.core.tensors import Tensors
    from fedgsp.models.split import BatchOutputs, Level

MODEL = "model."
TABLE, HAS, ROUND = "distill.table", "distill.has", "distill.round"
SUM, COUNT = "distill.sum", "distill.count"


@dataclass(frozen=True, kw_only=True)
class Distill(SGD):
    """SGD on a model of the client's own, drawn towards what others say of each label by `gamma`.

    Args:
        gamma: Weight of the pull towards what others say; 0 is training alone.
        match: How outputs are held against the others': by cross-entropy or by mean squared difference.
    """

    kind: ClassVar[str] = "distill"

    gamma: float = 0.1
    match: Literal["cross-entropy", "mse"] = "cross-entropy"

    requires_server: ClassVar[str] = "distill"
    yields: ClassVar[Yields] = "none"
    hands_on: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise InputError(f"the local rule 'distill': gamma must be a number of at least 0, not {self.gamma}.")
        if self.match not in ("cross-entropy", "mse"):
            raise InputError(f"the local rule 'distill': match must be 'cross-entropy' or 'mse', not '{self.match}'.")

    def wrap_model(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Nothing is added; the number of logits is noted, since tables have a row and a column for each."""
        model.eval()
        with torch.inference_mode():
            logits = model(example)
        model.train()
        model.logits = int(logits.shape[-1])  # type: ignore[assignment]  # a plain number, no part of the state
        return model

    def initial_client_state(self, model: nn.Module) -> Tensors:
        """The client's own model and its last table; before the first hop the weights that all begin with."""
        own = {MODEL + name: tensor for name, tensor in model_tensors(model).items()}
        return {**own, **_empty_table(model), ROUND: torch.tensor(-1)}

    def upload_spec(self, model: nn.Module) -> Tensors:
        """The table, and which of its rows count."""
        return _empty_table(model)

    def begin(self, ctx: LocalContext) -> None:
        """Take up the client's own model; work out what the others say."""
        adopt(ctx)
        total, count = ctx.shared[SUM].to(ctx.device), ctx.shared[COUNT].to(ctx.device)
        if int(ctx.state[ROUND]) == int(ctx.shared[ROUND]):
            total = total - ctx.state[TABLE]
            count = count - ctx.state[HAS]
        ctx.memo["known"] = count > 0
        ctx.memo["said"] = total / count.clamp(min=1)[:, None]
        ctx.memo["sums"] = torch.zeros_like(total, dtype=torch.float64)
        ctx.memo["counts"] = torch.zeros_like(count, dtype=torch.int64)

    def looks_at(self) -> Level:
        """Tables are made of outputs, whatever gamma is."""
        return "logits"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor | None:
        """gamma D; the outputs are added to the table."""
        memo, logits = ctx.memo, seen.outputs
        known: torch.Tensor = memo["known"][y]
        memo["sums"].index_add_(0, y, logits.detach().double())
        memo["counts"].index_add_(0, y, torch.ones_like(y))
        if not self.gamma or not bool(known.any()):
            return None
        said: torch.Tensor = memo["said"][y]
        if self.match == "mse":
            apart = (logits - said).square().mean(dim=1)
        else:
            apart = -(functional.softmax(said, dim=1) * functional.log_softmax(logits, dim=1)).sum(dim=1)
        return self.gamma * (apart * known).mean()

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """The table goes up; model and table stay."""
        counts = ctx.memo["counts"]
        table = (ctx.memo["sums"] / counts.clamp(min=1)[:, None]).float()
        ctx.sent = {TABLE: table, HAS: (counts > 0).to(torch.uint8)}
        own = {MODEL + name: tensor for name, tensor in model_tensors(ctx.model).items()}
        ctx.state = {**own, **ctx.sent, ROUND: torch.tensor(ctx.round)}
        return super().finish(ctx)

    def personalise(self, ctx: LocalContext, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """A client is evaluated on its own model."""
        adopt(ctx)


def adopt(ctx: LocalContext) -> None:
    """Put the client's own model in place of what it was handed."""
    own = {name.removeprefix(MODEL): tensor for name, tensor in ctx.state.items() if name.startswith(MODEL)}
    load_tensors(ctx.model, own)


def _empty_table(model: nn.Module) -> Tensors:
    size = int(model.logits)  # type: ignore[arg-type]
    return {TABLE: torch.zeros(size, size), HAS: torch.zeros(size, dtype=torch.uint8)}
