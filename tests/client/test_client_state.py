"""What clients keep between hops: files that are whole, named by their content, and only count when a round does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from fedgsp.client import SGD, ClientStore, LocalContext
from fedgsp.client.client_state import ClientStates
from fedgsp.core.chain import Chain
from fedgsp.core.errors import RunFailed
from fedgsp.core.tensors import Tensors
from tests.support.small_federations import pairs, walk, weight


def tensors(value: float) -> Tensors:
    return {"a": torch.full((3,), value), "b": torch.arange(2)}


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = ClientStore(tmp_path / "clients")
    mark = store.write(7, 3, tensors(1.5))
    found = store.read(7, mark)
    assert mark.startswith("000003-")
    assert found["a"].tolist() == [1.5] * 3
    assert found["b"].dtype == torch.int64
    assert [path.name for path in (tmp_path / "clients").iterdir()] == [f"000007-{mark}.safetensors"]


def test_a_mark_names_the_content() -> None:
    store = ClientStore(Path("/nowhere"))
    assert store.path(1, "000001-aa") != store.path(2, "000001-aa")


@pytest.mark.parametrize("at", [9, -2])
def test_a_damaged_state_is_one_sentence(tmp_path: Path, at: int) -> None:
    store = ClientStore(tmp_path)
    mark = store.write(0, 1, tensors(2.0))
    content = bytearray(store.path(0, mark).read_bytes())
    content[at] ^= 255
    store.path(0, mark).write_bytes(content)
    with pytest.raises(RunFailed, match=r"the client state .* is damaged: its content does not match its name; restore it"):
        store.read(0, mark)


def test_a_missing_state_is_one_sentence(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    mark = store.write(0, 1, tensors(2.0))
    store.drop(0, mark)
    assert store.missing({0: mark}) == [store.path(0, mark)]
    with pytest.raises(RunFailed, match=r"the client state .* is missing"):
        store.read(0, mark)


def test_retiring_drops_what_was_replaced_and_sweeping_what_nobody_names(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    old = {k: store.write(k, 1, tensors(k)) for k in (0, 1)}
    new = {**old, 1: store.write(1, 2, tensors(5.0))}
    store.retire(old, new)
    assert store.missing(new) == []
    assert store.missing(old) == [store.path(1, old[1])]
    orphan = store.write(2, 3, tensors(9.0))
    (tmp_path / ".000002-x.1.tmp").touch()
    (tmp_path / "mine.txt").touch()
    store.sweep([old, new])
    assert store.missing({2: orphan})
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine.txt", *(store.path(k, mark).name for k, mark in new.items())
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Counts(SGD):
    """Keeps how often a client was visited, and sends that up."""

    def initial_client_state(self, model: nn.Module) -> Tensors:
        return {"visits": torch.zeros(1, dtype=torch.int64)}

    def upload_spec(self, model: nn.Module) -> Tensors:
        return {"visits": torch.zeros(1, dtype=torch.int64), "half": torch.zeros(1)}

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        ctx.state = {"visits": ctx.state["visits"] + 1}
        ctx.sent = {**ctx.state, "half": torch.full((1,), 0.5)}
        return {}


THREE = pairs([(1.0, 1.0)], [(2.0, 1.0)], [(3.0, 1.0)])


def test_a_chain_walked_twice_finds_the_state_of_its_first_pass_and_leaves_one_file_a_client(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    kept = {1: store.write(1, 4, {"visits": torch.tensor([10])})}
    client_states = ClientStates(store, kept)
    walk(Counts(lr=0.01), THREE, lambda: weight(1.0), Chain((0, 1), passes=2), client_states=client_states)
    assert {k: store.read(k, mark)["visits"].item() for k, mark in client_states.versions.items()} == {0: 2, 1: 12}
    assert store.read(1, kept[1])["visits"].item() == 10, "the committed version is untouched"
    assert len(list(tmp_path.iterdir())) == 3
    assert client_states.sent["visits"].item() == 1 + 11 + 2 + 12, "the server receives the sum over the hops"
    assert client_states.sent["half"].item() == 2.0
    assert client_states.sent["half"].dtype == torch.float64


def test_a_chain_walked_again_begins_with_the_states_before_the_round(tmp_path: Path) -> None:
    store, ends = ClientStore(tmp_path), []
    for _ in range(2):
        client_states = ClientStates(store, {})
        walk(Counts(lr=0.01), THREE, lambda: weight(1.0), Chain((0, 1, 2)), client_states=client_states)
        ends.append(client_states.versions)
    assert ends[0] == ends[1]


def test_what_is_sent_beside_the_model_is_traffic_and_what_is_kept_is_not() -> None:
    _, plain = walk(SGD(lr=0.01), THREE, lambda: weight(1.0), Chain((0, 1)))
    _, counted = walk(Counts(lr=0.01), THREE, lambda: weight(1.0), Chain((0, 1)))
    assert [hop.bytes_down for hop in counted] == [hop.bytes_down for hop in plain]
    assert [hop.bytes_up - was.bytes_up for hop, was in zip(counted, plain, strict=True)] == [8 + 4, 8 + 4]
