from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data.readers.flower import from_flower
from tests.support.data_files import pictures


class Rows:
    """A partition as Hugging Face's `datasets` gives it: columns by name, slices as dicts of lists, pictures opened."""

    def __init__(self, count: int, seed: int) -> None:
        from PIL import Image

        self.column_names = ["image", "writer_id", "character"]
        self._images = [Image.fromarray(image) for image in pictures(count, seed)]

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, at: slice) -> dict[str, list[Any]]:
        some = self._images[at]
        return {"image": some, "writer_id": ["w"] * len(some), "character": [k % 3 for k in range(len(some))]}


class Partitioner:
    num_partitions = 3

    def load_partition(self, number: int) -> Rows:
        return Rows(4 + number, number)


class FederatedDataset:
    """Shaped as flwr_datasets.FederatedDataset: partitioners by split, load_partition(i)."""

    def __init__(self) -> None:
        self.partitioners = {"train": Partitioner()}

    def load_partition(self, partition_id: int, split: str | None = None) -> Rows:
        return self.partitioners["train"].load_partition(partition_id)


@pytest.mark.parametrize("loader", [Partitioner(), FederatedDataset()])
def test_every_partition_is_a_client(loader: Any) -> None:
    pytest.importorskip("PIL")
    data = from_flower(loader, test_fraction=0.25)
    assert data.clients == ("0", "1", "2")
    assert data.sizes.tolist() == [4, 5, 6]
    assert data.features.dtype == np.uint8
    assert np.array_equal(data.features[:4], pictures(4, 0))
    assert data.classes == 3


def test_a_function_and_lists_of_dicts_will_do() -> None:
    def load(number: int) -> list[dict[str, Any]]:
        return [{"x": [0.5, float(k)], "label": "ab"[k % 2]} for k in range(5)]

    data = from_flower(load, partitions=2)
    assert data.features.dtype == np.float32
    assert data.classes == 2
    with pytest.raises(InputError, match="Say partitions=N"):
        from_flower(load)


def test_refused() -> None:
    with pytest.raises(InputError, match="not int"):
        from_flower(3)
    with pytest.raises(InputError, match="partition 1 is empty"):
        from_flower(lambda k: [{"x": [1.0], "y": 1}] * (1 - k), partitions=2)
    with pytest.raises(InputError, match=r"partition 1: samples of unequal shape: \(2,\) here, \(1,\) before"):
        from_flower(lambda k: [{"x": [1.0] * (k + 1), "y": 1}], partitions=2)
    with pytest.raises(InputError, match="which column is the features"):
        from_flower(lambda k: [{"z": [1.0], "y": 1}], partitions=1)
