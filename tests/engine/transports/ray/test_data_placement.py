"""What a worker has at hand, and how it is divided: all without Ray."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.data.federated import SPLITS
from fedgsp.engine.transports.ray.data_placement import (
    ProvenFile,
    bare,
    cut,
    files_of,
    local_rows,
    only,
    piece_of,
    shards,
    spread,
)
from fedgsp.engine.transports.ray.settings import parse_resources, room
from fedgsp.engine.transports.ray.tensor_buffer import pack, unpack
from tests.support import tiny


def test_resources_are_those_of_one_worker() -> None:
    assert parse_resources(None) == (("CPU", 1.0),)
    assert dict(parse_resources("gpu=0.25, memory=2e9,tpu=1")) == {"CPU": 1.0, "GPU": 0.25, "memory": 2e9, "tpu": 1.0}
    assert dict(parse_resources("cpu=0,gpu=1")) == {"CPU": 0.0, "GPU": 1.0}
    for wrong in ("gpu", "gpu=x", "=1", "cpu=-1", "cpu=inf", "gpu=nan"):
        with pytest.raises(InputError, match="NAME=AMOUNT"):
            parse_resources(wrong)
    with pytest.raises(InputError, match="without end"):
        parse_resources("cpu=0")


def test_a_node_has_room_for_as_many_workers_as_its_scarcest_resource_allows() -> None:
    assert room({"CPU": 8.0, "GPU": 1.0}, parse_resources("gpu=0.3")) == 3
    assert room({"CPU": 2.0, "GPU": 1.0}, parse_resources("gpu=0.25")) == 2
    assert room({"CPU": 8.0}, parse_resources("gpu=0.3")) == 0
    assert room({"CPU": 0.6}, parse_resources("cpu=0.2")) == 3


def test_a_file_is_read_in_place_only_where_it_is_the_same(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100_000, dtype=np.float32).reshape(-1, 4))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    file = ProvenFile.of(mapped)
    assert file is not None
    found = file.open()
    assert found is not None
    assert np.array_equal(found, mapped)
    other = np.arange(100_000, dtype=np.float32).reshape(-1, 4)
    other[-1] = 0
    np.save(tmp_path / "a.npy", other)
    assert file.open() is None
    (tmp_path / "a.npy").unlink()
    assert file.open() is None
    assert ProvenFile.of(np.zeros(3)) is None
    assert files_of(tiny.federation()) is None


def test_the_clients_of_some_shards_have_their_own_samples_and_the_others_none() -> None:
    data = tiny.federation(8)
    pieces = [piece_of(data, [5, 1]), piece_of(data, [6])]
    held = only(data, pieces)
    assert held.clients == data.clients
    for part in SPLITS:
        for client in range(8):
            rows = getattr(held, part)[client]
            if client not in (1, 5, 6):
                assert len(rows) == 0
                continue
            theirs = getattr(data, part)[client]
            assert np.array_equal(held.features[rows], data.features[theirs])
            assert np.array_equal(held.labels[rows], data.labels[theirs])
            assert np.array_equal(local_rows(pieces, theirs), rows)


def test_samples_cut_out_for_an_evaluation_are_in_the_order_asked_for() -> None:
    data = tiny.federation(4)
    rows = data.test.rows[::-1].copy()
    piece = cut(data, rows)
    assert np.array_equal(piece.features, data.features[rows])
    assert np.array_equal(piece.labels, data.labels[rows])


@given(st.integers(1, 12), st.integers(1, 20))
def test_every_client_is_in_one_shard_and_shards_are_about_as_large(count: int, clients: int) -> None:
    data = tiny.federation(clients)
    dealt = shards(data, count)
    assert sorted(client for shard in dealt for client in shard) == list(range(clients))
    sizes = [int(data.sizes[list(shard)].sum()) for shard in dealt]
    assert max(sizes) - min(sizes) <= int(data.sizes.max())


@given(st.dictionaries(st.integers(0, 6), st.frozensets(st.integers(0, 11)), min_size=1), st.integers(1, 12))
def test_shards_are_spread_evenly_and_no_more_move_than_must(held: dict[int, frozenset[int]], count: int) -> None:
    owned: set[int] = set()
    clean = {}
    for member, numbers in held.items():  # nobody holds what another does
        clean[member] = frozenset(n for n in numbers if n < count and n not in owned)
        owned |= clean[member]
    wanted = spread(clean, count)
    assert sorted(n for numbers in wanted.values() for n in numbers) == list(range(count))
    sizes = [len(numbers) for numbers in wanted.values()]
    assert max(sizes) - min(sizes) <= 1
    for member, numbers in wanted.items():
        assert len(numbers & clean[member]) == min(len(numbers), len(clean[member]))


def test_tensors_survive_a_parcel_to_the_bit() -> None:
    tensors = {
        "w": torch.randn(3, 5),
        "half": torch.randn(7).to(torch.bfloat16),
        "count": torch.tensor(41),
        "none": torch.empty(0, 4),
        "flags": torch.tensor([True, False]),
        "turned": torch.randn(4, 6).t(),
    }
    for name, tensor in unpack(pack(tensors)).items():
        assert tensor.dtype == tensors[name].dtype
        assert torch.equal(tensor, tensors[name])


class Doubled:
    """A data set that gives other features than those that were stored when it was read first."""

    reads = 0

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[list[float], int]:
        self.reads += 1
        return [float(i), 0.0 if self.reads <= 12 else 1.0], i % 2


def test_a_data_set_is_read_anew_by_the_rows_of_the_whole() -> None:
    data = fedgsp.from_dataset(Doubled(), np.arange(12) % 4, anew=True)
    there = cloudpickle.loads(cloudpickle.dumps(only(bare(data), [piece_of(data, [3]), piece_of(data, [1])])))
    assert there.augmentation is not None
    for client in (1, 3):
        mine = there.train[client]
        x = torch.from_numpy(np.asarray(there.features[mine]))
        made = there.augmentation(x, mine)
        assert torch.equal(made[:, 0], x[:, 0])  # the same samples
        assert made[:, 1].eq(1).all()  # as they are now
        assert made[:, 0].tolist() == data.features[data.train[client], 0].tolist()
