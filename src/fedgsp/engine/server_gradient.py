"""The server's own data and a model to try on it, in the process that drives the run: for server rules that train."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.data.batches import gather
from fedgsp.engine.transports.inline import OneThread
from fedgsp.evaluate.forward import CHUNK
from fedgsp.models.state import load_tensors

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors
    from fedgsp.engine.base import WorkerSetup


class ServerGradient:
    """Some rows of a federation, and gradients over them; one thread and fixed chunks, so that nothing can change a bit."""

    def __init__(self, setup: WorkerSetup, rows: NDArray[np.int64]) -> None:
        self._setup, self._rows = setup, rows
        self._model: nn.Module | None = None

    def gradient(self, model: Tensors) -> Tensors:
        """The gradient of the mean loss over the rows, for the trained tensors, on the CPU."""
        device = torch.device(self._setup.device)
        with OneThread():
            if self._model is None:
                self._model = self._setup.fresh_model().to(device)
            module = self._model
            load_tensors(module, model)
            self._setup.rule.before_evaluate(module, {})
            module.eval()
            module.zero_grad(set_to_none=True)
            for begin in range(0, len(self._rows), CHUNK):
                x, y = gather(self._setup.data, self._rows[begin : begin + CHUNK])
                loss = self._setup.task.loss(module(x.to(device)), y.to(device)).sum() / len(self._rows)
                loss.backward()  # type: ignore[no-untyped-call]
            return {
                n: p.grad.detach().cpu().clone()
                for n, p in module.named_parameters(remove_duplicate=False)
                if p.grad is not None
            }
