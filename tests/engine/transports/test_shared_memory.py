"""Shared memory: what one process writes another reads, in place, and nothing has a name that could be left behind."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from fedgsp.engine.transports.shared_memory import Region, SharedData, lay_out, open_data
from tests.support import tiny


def test_tensors_of_every_kind_come_back_the_same() -> None:
    tensors = {
        "weights": torch.randn(3, 5),
        "half": torch.randn(7).to(torch.bfloat16),
        "counter": torch.tensor(12),
        "mask": torch.tensor([True, False, True]),
        "nothing": torch.empty(0, 4),
    }
    layout, end = lay_out(tensors, begin=64)
    region = Region()
    region.reserve(end)
    region.write(tensors, layout)
    again = Region(region.descriptor).tensors(layout)
    for name, tensor in tensors.items():
        assert torch.equal(again[name], tensor)
        assert again[name].dtype == tensor.dtype
        assert again[name].shape == tensor.shape
    region.close()
    region.close()


def test_places_do_not_overlap_and_are_aligned() -> None:
    tensors = {f"t{n}": torch.empty(n) for n in range(1, 40)}
    layout, end = lay_out(tensors)
    places = sorted((slot.offset, slot.offset + 4 * slot.shape[0]) for slot in layout.values())
    assert all(offset % 64 == 0 for offset, _ in places)
    assert all(stop <= nxt for (_, stop), (nxt, _) in pairwise(places))
    assert end >= places[-1][1]


def test_a_region_grows_under_a_reader() -> None:
    writer = Region()
    reader = Region(writer.descriptor)
    for size in (10, 1000, 100_000):
        tensors = {"x": torch.arange(size, dtype=torch.float32)}
        layout, end = lay_out(tensors)
        writer.reserve(end)
        writer.write(tensors, layout)
        assert torch.equal(reader.tensors(layout)["x"], tensors["x"])
    writer.close()


def test_data_in_memory_and_in_files_is_seen_alike(tmp_path: Path) -> None:
    data = tiny.federation()
    np.save(tmp_path / "features.npy", data.features)
    on_disk = replace(data, features=np.load(tmp_path / "features.npy", mmap_mode="r"))
    for version in (data, on_disk):
        shared = SharedData(version)
        assert len(shared.descriptors) == (2 if version is data else 1)  # a file is not copied
        seen = open_data(shared.recipe())
        assert seen.fingerprint == data.fingerprint
        shared.close()
        shared.close()
