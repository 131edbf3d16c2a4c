"""FD, federated distillation (Jeong et al. 2018): clients keep their models and exchange what they say of each label.

Client k trains its OWN model, which never leaves it. Over a visit's batches it averages its logits label by label:

    t_k,c = mean of logits over its samples of label c            sent up (F x F), with a mark for every label it has
    tbar_k,c = (S_c - t_k,c) / (M_c - 1)                          S_c, M_c: sum and number of the tables of the last round;
                                                                  k's own is taken out where it was among them
    loss = CE + gamma D(logits(x), tbar_k,y)                      for samples whose label somebody else reported

D is the cross-entropy between softmax(tbar) and the softmax of the logits (`match="cross-entropy"`) or the mean squared
difference of the logits ("mse", as re-implementations have it). M_c counts those who reported c, not all who took part: with
many labels few have each. gamma = 0, or one client, is training alone, to the bit.

There is NO global model: every client is evaluated on its own, clients that have not trained yet on the weights all begin with.
Such figures are about something else than those of one model. Traffic: 4 F^2 + F bytes up and 4 F^2 + 4 F + 8 down a visit,
30.9 kB for 62 labels. A client keeps its model and its last table: |w| + 4 F^2 on its disk.

To tune: gamma over 0.01, 0.1, 1; lr as for FedAvg.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

from fedgsp.client.rules import SGD, Visit
from fedgsp.core.errors import InputError
from fedgsp.core.state import Yields
from fedgsp.core.tensors import Tensors
from fedgsp.models.split import Level, Seen
from fedgsp.models.state import load_tensors

MODEL = "model."
TABLE, HAS, ROUND = "distill.table", "distill.has", "distill.round"
SUM, COUNT = "distill.sum", "distill.count"


@dataclass(frozen=True, kw_only=True)
class Distill(SGD):
    """SGD on a model of the client's own, drawn towards what others say of each label by `gamma`."""

    gamma: float = 0.1
    match: Literal["cross-entropy", "mse"] = "cross-entropy"

    half: ClassVar[str] = "distill"
    yields: ClassVar[Yields] = "none"
    hands_on: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise InputError(f"the local rule 'distill': gamma must be a number of at least 0, not {self.gamma}.")
        if self.match not in ("cross-entropy", "mse"):
            raise InputError(f"the local rule 'distill': match must be 'cross-entropy' or 'mse', not '{self.match}'.")

    def equip(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Nothing is added; the number of logits is noted, since tables have a row and a column for each."""
        model.eval()
        with torch.inference_mode():
            logits = model(example)
        model.train()
        model.logits = int(logits.shape[-1])  # type: ignore[assignment]  # a plain number, no part of the state
        return model

    def keeps(self, model: nn.Module) -> Tensors:
        """The client's own model and its last table; before the first visit the weights that all begin with."""
        own = {MODEL + name: tensor for name, tensor in model.state_dict().items()}
        return {**own, **_empty_table(model), ROUND: torch.tensor(-1)}

    def sends(self, model: nn.Module) -> Tensors:
        """The table, and which of its rows count."""
        return _empty_table(model)

    def begin(self, visit: Visit) -> None:
        """Take up the client's own model; work out what the others say."""
        adopt(visit)
        total, count = visit.shared[SUM].to(visit.device), visit.shared[COUNT].to(visit.device)
        if int(visit.state[ROUND]) == int(visit.shared[ROUND]):
            total = total - visit.state[TABLE]
            count = count - visit.state[HAS]
        visit.memo["known"] = count > 0
        visit.memo["said"] = total / count.clamp(min=1)[:, None]
        visit.memo["sums"] = torch.zeros_like(total, dtype=torch.float64)
        visit.memo["counts"] = torch.zeros_like(count, dtype=torch.int64)

    def looks_at(self) -> Level:
        """Tables are made of outputs, whatever gamma is."""
        return "logits"

    def term(self, visit: Visit, seen: Seen, y: torch.Tensor) -> torch.Tensor | None:
        """gamma D; the outputs are added to the table."""
        memo, logits = visit.memo, seen.outputs
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

    def finish(self, visit: Visit) -> dict[str, float]:
        """The table goes up; model and table stay."""
        counts = visit.memo["counts"]
        table = (visit.memo["sums"] / counts.clamp(min=1)[:, None]).float()
        visit.sent = {TABLE: table, HAS: (counts > 0).to(torch.uint8)}
        own = {MODEL + name: tensor for name, tensor in visit.model.state_dict().items()}
        visit.state = {**own, **visit.sent, ROUND: torch.tensor(visit.round)}
        return super().finish(visit)

    def personalise(self, visit: Visit, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """A client is evaluated on its own model."""
        adopt(visit)


def adopt(visit: Visit) -> None:
    """Put the client's own model in place of what it was handed."""
    own = {name.removeprefix(MODEL): tensor for name, tensor in visit.state.items() if name.startswith(MODEL)}
    load_tensors(visit.model, own)


def _empty_table(model: nn.Module) -> Tensors:
    size = int(model.logits)  # type: ignore[arg-type]
    return {TABLE: torch.zeros(size, size), HAS: torch.zeros(size, dtype=torch.uint8)}
