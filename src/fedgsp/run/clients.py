"""What a report needs to know of a run's clients and model, kept in the run directory so that no data has to be loaded again.

clients.safetensors is written once, at the start; scores.jsonl gets a line in every round that is evaluated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from fedgsp.core.errors import InputError
from fedgsp.core.files import read_regular
from fedgsp.run.record_checks import is_count, is_number

if TYPE_CHECKING:
    from fedgsp.evaluate import ClientScores
    from fedgsp.run.run import Run

SCHEMA = 1
DIGITS = 4
"""Decimals of a client's score in scores.jsonl."""


@dataclass(frozen=True, eq=False)
class ClientFacts:
    """Class counts (K, F) of the training samples, samples by part (K,), who trains, and what the run is about.

    `score` names the metric that clients are judged by (higher is better), None where it is the loss. `classes` is 0 for
    regression, whose counts are those of quantile bins. `flops_per_sample` is None where it could not be counted.
    `class_names` are what classes are called, if they have names.
    """

    counts: NDArray[Any]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    trains: NDArray[np.bool_]
    held_out: NDArray[np.bool_]
    classes: int
    score: str | None
    shape: tuple[int, ...]
    parameters: int
    flops_per_sample: float | None
    fingerprint: str
    source: str | None
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Run) -> ClientFacts:
        """Those of a run that is about to start."""
        data, trained = run.data, run.worker_setup.data
        own = slice(len(data), len(trained))  # samples that a preparation put at the server: it trains like a client
        nobody = np.zeros(len(trained) - len(data), dtype=np.int64)
        marks = {}
        for name, chosen in (("trains", run.participants), ("held_out", run.held_out)):
            marks[name] = np.zeros(len(trained), dtype=np.bool_)
            marks[name][chosen] = True
        return cls(
            counts=_narrow(np.concatenate([data.profiles().counts, trained.profiles().counts[own]])),
            train=np.concatenate([data.train.sizes, trained.train.sizes[own]]),
            validation=np.concatenate([data.validation.sizes, nobody]),
            test=np.concatenate([data.test.sizes, nobody]),
            trains=marks["trains"],
            held_out=marks["held_out"],
            classes=data.classes,
            score=run.worker_setup.task.score,
            shape=data.sample_shape,
            parameters=sum(tensor.numel() for tensor in run.initial_model.values()),
            flops_per_sample=_flops(run),
            fingerprint=data.fingerprint,
            source=data.source,
            class_names=data.class_names,
        )

    def is_sound(self) -> bool:
        """Whether everything is of the type and shape that it should be."""
        clients = len(self.train) if self.train.ndim == 1 else -1
        each = (self.train, self.validation, self.test, self.trains, self.held_out)
        arrays = all(array.shape == (clients,) and array.dtype.kind in "iub" for array in each)
        rows = self.counts.ndim == 2 and len(self.counts) == clients and self.counts.dtype.kind in "iu"
        positive = all(int(array.min(initial=0)) >= 0 for array in (*each, self.counts))
        texts = isinstance(self.fingerprint, str) and all(x is None or isinstance(x, str) for x in (self.score, self.source))
        texts = texts and all(isinstance(name, str) for name in self.class_names)
        counts = is_count(self.classes) and is_count(self.parameters) and all(map(is_count, self.shape))
        flops = self.flops_per_sample is None or (is_number(self.flops_per_sample) and self.flops_per_sample > 0)
        return arrays and rows and positive and texts and counts and flops

    def encode(self) -> bytes:
        """The content of clients.safetensors."""
        arrays = {name: getattr(self, name) for name in ("counts", "train", "validation", "test")}
        arrays.update({name: getattr(self, name).astype(np.uint8) for name in ("trains", "held_out")})
        facts: dict[str, Any] = {
            "schema": SCHEMA, "classes": self.classes, "score": self.score, "shape": list(self.shape), "source": self.source,
            "parameters": self.parameters, "flops_per_sample": self.flops_per_sample, "fingerprint": self.fingerprint,
        }  # fmt: skip
        if self.class_names:
            facts["class_names"] = list(self.class_names)
        return save_safetensors({k: np.ascontiguousarray(v) for k, v in arrays.items()}, {"fedgsp": json.dumps(facts)})


def read_client_facts(run: Path) -> ClientFacts | None:
    """Those of a run on disk; None for a run that an earlier version recorded without them."""
    path = run / "clients.safetensors"
    if not path.exists():
        return None
    try:
        content = read_regular(path)
        length = int.from_bytes(content[:8], "little")
        facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["fedgsp"])
        arrays = load_safetensors(content)
        if facts.pop("schema") != SCHEMA:
            raise InputError(f"{path} is of another version of fedgsp; this one reads schema {SCHEMA}.")
        known = tuple(facts.pop("class_names", ()))
        fields: dict[str, Any] = {**arrays, **facts, "shape": tuple(facts["shape"]), "class_names": known}
        fields.update({name: arrays[name].astype(np.bool_) for name in ("trains", "held_out")})
        found = ClientFacts(**fields)
        if not found.is_sound():
            raise ValueError
        return found
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not one that fedgsp wrote.") from error


def score_record(round_: int, scores: ClientScores, score: str | None, clients: int) -> dict[str, Any]:
    """A line of scores.jsonl: each client's score (or loss), null for those that were not judged."""
    values: list[float | None] = [None] * clients
    for client, value in zip(scores.clients.tolist(), scores.values[score or "loss"].tolist(), strict=True):
        values[client] = round(value, DIGITS)
    return {"round": round_, "values": values}


def _narrow(counts: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them."""
    most = int(counts.max(initial=0))
    return counts.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)


def _flops(run: Run) -> float | None:
    """A model of the user's that cannot be counted must not keep a run from starting."""
    from fedgsp.run.flops import flops_per_sample

    try:
        return flops_per_sample(run)
    except Exception:
        return None
