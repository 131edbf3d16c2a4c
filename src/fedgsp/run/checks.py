"""What a run needs of the machine and of its own parts, asked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from fedgsp.client.batching import Batching
from fedgsp.core.errors import InputError
from fedgsp.core.machine import memory_bytes
from fedgsp.core.spool import room, row_bytes
from fedgsp.core.sums import MOST_ADDENDS_BITS
from fedgsp.core.tensors import Tensors, total_bytes
from fedgsp.data.batches import gather
from fedgsp.parts import kind_of

if TYPE_CHECKING:
    from fedgsp.engine.base import WorkerSetup
    from fedgsp.method import Method
    from fedgsp.run.config import RunConfig
    from fedgsp.server import Bench


def checked_device(device: str, elsewhere: bool = False) -> str:
    """A device that is there, or may be there `elsewhere`."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise InputError(f"unknown device '{device}'; use cpu, cuda, cuda:N or mps.") from error
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(kind, False) and not (elsewhere and kind in there):
        raise InputError(
            f"the device '{device}' is not available here; torch sees: {', '.join(k for k, v in there.items() if v)}."
        )
    return device


def batch_notes(job: WorkerSetup, model: nn.Module) -> tuple[str, ...]:
    """What becomes of a last batch of one sample, where something is done about it."""
    example, _ = gather(job.data, np.zeros(1, dtype=np.int64))
    batching, sizes = Batching.of(job.rule, model, example), job.data.train.sizes
    notes = []
    merged = int(((sizes % batching.size == 1) & (sizes > batching.size)).sum())
    if batching.merge_last and job.rule.merge_last is None and merged:
        notes.append(
            f"the model has a batch norm, so {merged} client(s) whose last batch would be a single sample add it to the batch "
            f"before; local.merge_last says otherwise."
        )
    alone = int((sizes == 1).sum())
    if batching.pairs and alone:
        notes.append(f"{alone} client(s) have one training sample, which a batch norm cannot train on: they make no step.")
    return tuple(notes)


def check_memory(live: int) -> None:
    """Several live models must fit in memory."""
    if live > memory_bytes():
        raise InputError(
            f"the server holds the live models of all chains between rounds, up to {live / 1e9:.1f} GB with what is handed "
            f"to workers, and there are {memory_bytes() / 1e9:.1f} GB of memory; train fewer clients a round (kappa), or a "
            f"smaller model."
        )


def live_model_bytes(config: RunConfig, model: Tensors, clients: int) -> int:
    """What several live models take at most: as they were, as they are handed to workers, and as they come back."""
    return 3 * config.method.server.live_models(most_chains(config, clients)) * total_bytes(model)


def most_chains(config: RunConfig, clients: int) -> int:
    """Chains of the largest round: of the first, the last or one between."""
    rounds = config.run.rounds
    return max(config.method.planner.schedule(r, clients).sampled for r in {1, (rounds + 1) // 2, rounds})


def check_addends(config: RunConfig, clients: int) -> None:
    """Sums are exact for so many results and no more."""
    chains, most = most_chains(config, clients), 2**MOST_ADDENDS_BITS
    if chains > most:
        raise InputError(
            f"a round of {chains:,} chains cannot be summed exactly, {most:,} can; train fewer clients a round (kappa), or put "
            f"them in groups, as fedgsp does."
        )


def check_disk(config: RunConfig, model: Tensors, clients: int) -> None:
    """A server rule that keeps all results of a round must have room for them."""
    if config.method.server.needs != "all":
        return
    chains = most_chains(config, clients)
    wanted, (folder, free) = chains * row_bytes(model), room()
    if wanted > free:
        raise InputError(
            f"the server rule keeps the {chains} results of a round in {folder}, {wanted / 1e9:.1f} GB; only "
            f"{free / 1e9:.1f} GB are free there; free some space, or set TMPDIR to a folder with more."
        )


def check_bench(method: Method, bench: Bench | None) -> None:
    """Data on the server and a rule that trains on it go together."""
    wanted = method.server.wants_data
    if wanted and bench is None:
        raise InputError(
            f"the server rule '{kind_of(method.server)}' trains on samples of the server's own, and there are none; give the "
            f"method a preparation that brings some there, such as 'meta-set'."
        )
    if bench is not None and not wanted:
        raise InputError(
            f"the preparation '{kind_of(method.preparation)}' brings samples to the server, which the server rule "
            f"'{kind_of(method.server)}' has no use for; take 'meta', or leave the preparation out."
        )
