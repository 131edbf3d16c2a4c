"""Client state: tensors that live on a client between its hops (SCAFFOLD's control variate, MOON's last local model).

Each version is a safetensors file of its own, `CLIENT-VERSION.safetensors`, whose version has the round that wrote it and a
digest of its tensors. A file is written whole and never changed; which version counts for whom is
`ServerState.client_versions`, committed with the round. So a worker that dies, or a run that is killed, leaves at worst files
that nobody refers to: the chain is walked again from the states before the round. Only the
states of the clients that train are ever in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import nn

from fedgsp.core.errors import RunFailed
from fedgsp.core.files import explained, write_whole
from fedgsp.core.tensors import Tensors, clone, digest

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.client.rules import SGD

NAME = re.compile(r"(\d{6,})-(\d{6,}-[0-9a-f]{32})\.safetensors")
HEADER_BYTES = 1024
"""What a file takes beside its tensors, about: their names, the file system's blocks."""


@dataclass(frozen=True)
class ClientStore:
    """The states of all clients, in one folder; `durable` files also outlive the machine's power.

    Args:
        folder: Where the files are.
        durable: Whether files are synced, so that they outlive the machine's power.
    """

    folder: Path
    durable: bool = True

    def path(self, client: int, version: str) -> Path:
        """The file of one version of one client's state."""
        return self.folder / f"{client:06d}-{version}.safetensors"

    def write(self, client: int, round_: int, tensors: Tensors) -> str:
        """Put down a version of a client's state; its name is returned."""
        version = f"{round_:06d}-{digest(tensors)[:32]}"
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        content = save_safetensors({name: tensor.contiguous() for name, tensor in tensors.items()})
        write_whole(self.path(client, version), content, sync=self.durable)
        return version

    def read(self, client: int, version: str) -> Tensors:
        """A version of a client's state, checked against its name."""
        path = self.path(client, version)
        try:
            found = load_safetensors(path.read_bytes())
        except FileNotFoundError as error:
            raise RunFailed(f"the client state {path} is missing, so the run cannot go on; restore it from a copy.") from error
        except (SafetensorError, ValueError) as error:
            raise RunFailed(_damaged(path)) from error
        if version.rpartition("-")[2] != digest(found)[:32]:
            raise RunFailed(_damaged(path))
        return found

    def drop(self, client: int, version: str) -> None:
        """Forget a version."""
        self.path(client, version).unlink(missing_ok=True)

    def retire(self, older: Mapping[int, str], newer: Mapping[int, str]) -> None:
        """Forget the versions of `older` that `newer` has other ones in place of."""
        for client, version in older.items():
            if newer.get(client, version) != version:
                self.drop(client, version)

    def sweep(self, referred: Iterable[Mapping[int, str]]) -> None:
        """Forget everything that none of `referred` names: what a killed process had written for a round that never counted."""
        if not self.folder.is_dir():
            return
        named = {self.path(client, version).name for versions in referred for client, version in versions.items()}
        for path in self.folder.iterdir():
            if path.name not in named and (NAME.fullmatch(path.name) or path.name.endswith(".tmp")):
                path.unlink(missing_ok=True)

    def missing(self, versions: Mapping[int, str]) -> list[Path]:
        """The files of these versions that are not there."""
        return [path for path in (self.path(*entry) for entry in sorted(versions.items())) if not path.is_file()]

    def size(self) -> int:
        """The bytes that are there."""
        return sum(path.stat().st_size for path in self.folder.iterdir()) if self.folder.is_dir() else 0


class ClientStates:
    """What a chain carries beside its model: where its clients' states are, and the sum of what they send up.

    `versions` are those written on the way, `sent` the sum. Without a store the states stay `in_memory` (for a single
    hop, or a test).
    """

    def __init__(self, store: ClientStore | None = None, committed: Mapping[int, str] | None = None) -> None:
        self._store = store
        self._committed = committed or {}
        self.versions: dict[int, str] = {}
        self.sent: Tensors = {}
        self.in_memory: dict[int, Tensors] = {}

    def load(self, rule: SGD, client: int, model: nn.Module, device: torch.device) -> Tensors:
        """A client's state as it is before this hop: its own, or what the rule says it begins with."""
        version = self.versions.get(client) or self._committed.get(client)
        if self._store is not None and version is not None:
            found = self._store.read(client, version)
        else:
            found = self.in_memory.get(client) or clone(rule.initial_client_state(model))
        return {name: tensor.to(device) for name, tensor in found.items()}

    def save(self, ctx: LocalContext) -> None:
        """Put down the client's state as it is after the hop, and add up what it sends."""
        for name, tensor in ctx.sent.items():
            value = tensor.detach().cpu()
            value = value.to(torch.float64 if value.is_floating_point() else torch.int64, copy=True)
            self.sent[name] = self.sent[name] + value if name in self.sent else value
        if not ctx.state:
            return
        state = {name: tensor.detach().cpu() for name, tensor in ctx.state.items()}
        if self._store is None:
            self.in_memory[ctx.client] = clone(state)
            return
        version, before = self._store.write(ctx.client, ctx.round, state), self.versions.get(ctx.client)
        if before is not None and before != version:  # written by an earlier pass of this very walk, so it never counted
            self._store.drop(ctx.client, before)
        self.versions[ctx.client] = version


def _damaged(path: Path) -> str:
    return f"the client state {path} is damaged: its content does not match its name; restore it from a copy."
