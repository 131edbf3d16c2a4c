from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedgsp.core.errors import InputError
from fedgsp.data.in_memory import from_dataset, from_frame, partition
from fedgsp.data.partitioners import IID, Dirichlet

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = np.arange(60) % 3


class Pairs(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, k: int) -> Any:
        return torch.from_numpy(X[k]), int(Y[k])


def columns() -> dict[str, Any]:
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y, "site": [f"s{k % 4}" for k in range(60)]}


def test_arrays_tensors_and_data_sets_are_dealt_alike() -> None:
    how = Dirichlet(5, 0.5, 4)
    made = [
        partition((X, Y), how),
        partition((torch.from_numpy(X), torch.from_numpy(Y)), how),
        partition(Pairs(), how),
        partition(torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), how),
    ]
    assert len({data.fingerprint for data in made}) == 1
    assert made[0].classes == 3
    assert made[0].sizes.sum() == 60


def test_frames_of_pandas_and_polars_are_alike() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    one = from_frame(pandas.DataFrame(columns()), client="site", label="y")
    two = from_frame(polars.DataFrame(columns()), client="site", label="y")
    assert one.fingerprint == two.fingerprint
    assert one.clients == ("s0", "s1", "s2", "s3")
    assert one.sample_shape == (3,)
    dealt = from_frame(polars.DataFrame(columns()), label="y", features=["a", "c"], how=IID(6))
    assert dealt.sizes.tolist() == [10] * 6
    assert dealt.sample_shape == (2,)


def test_texts_become_classes() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns()).assign(y=["ill" if k % 2 else "well" for k in range(60)])
    assert from_frame(frame, client="site", label="y").labels[:2].tolist() == [1, 0]
    assert partition((X, np.array(["b", "a"] * 30)), IID(2)).labels[:2].tolist() == [1, 0]


def test_a_data_set_with_owners() -> None:
    data = from_dataset(Pairs(), ["ann", "bob"] * 30)
    assert data.clients == ("ann", "bob")
    assert data.sizes.tolist() == [30, 30]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: partition((X, Y[:-1]), IID(2)), "60 features, 59 labels"),
        (lambda: partition((X[:0], Y[:0]), IID(2)), "has no samples"),
        (lambda: partition(3, IID(2)), "not int"),
        (lambda: partition(np.zeros((5, 2)), IID(2)), "must give .features, label. pairs"),
        (lambda: partition((np.full((4, 1), np.nan), np.zeros(4, int)), IID(2)), "NaN"),
        (lambda: partition((X, -Y), IID(2), classes=9), "negative"),
        (lambda: from_dataset(Pairs(), ["ann", None] * 30), "sample 1 has no client"),
    ],
)
def test_refused(call: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        call()


def test_frames_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns())
    with pytest.raises(InputError, match=r"no column 'sight' for the client: did you mean 'site'\?"):
        from_frame(frame, client="sight")
    with pytest.raises(InputError, match="column 'site' is not made of numbers"):
        from_frame(frame, label="y", features=["a", "site"], how=IID(2))
    with pytest.raises(InputError, match="no columns of numbers"):
        from_frame(frame[["y", "site"]])
