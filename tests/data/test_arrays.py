from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.arrays import CHECK_ROWS, from_arrays, split_rows

X: NDArray[Any] = np.arange(24, dtype=np.float32).reshape(6, 4)
Y: NDArray[Any] = np.array([0, 1, 2, 0, 1, 2])
C: NDArray[Any] = np.array([0, 0, 0, 1, 1, 1])
NAMES = ["ann", "bob"]


def refused(features: Any = X, labels: Any = Y, owners: Any = C, names: Any = NAMES, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_arrays(features, labels, owners, names, where="my.npz", **options)
    return str(caught.value)


def with_value(array: NDArray[Any], row: int, value: float) -> NDArray[Any]:
    changed = array.copy()
    changed[row] = value
    return changed


def test_samples_go_to_the_clients_that_own_them_wherever_they_are_stored() -> None:
    data = from_arrays(X, Y, np.array([1, 0, 1, 0, 0, 1]), NAMES)
    owned = [sorted([*data.train[k].tolist(), *data.test[k].tolist()]) for k in range(2)]
    assert owned == [[1, 3, 4], [0, 2, 5]]
    assert data.clients == ("ann", "bob")
    assert data.classes == 3


def test_clients_without_names_are_numbered() -> None:
    assert from_arrays(X, Y, C).clients == ("0", "1")


def test_only_bytes_are_scaled() -> None:
    assert from_arrays(X.astype(np.uint8), Y, C).divisor == 255.0
    assert from_arrays(X, Y, C).divisor == 1.0
    assert from_arrays(X.astype(np.int64), Y, C).divisor == 1.0


def test_classes_may_be_more_than_the_labels_there_are() -> None:
    assert from_arrays(X, Y, C, classes=62).classes == 62


def test_real_labels_are_a_regression() -> None:
    assert from_arrays(X, Y + 0.5, C).classes == 0
    assert from_arrays(X, Y.astype(np.float64), C, classes=0).classes == 0
    assert from_arrays(X, np.ones((6, 2)) * 0.5, C).labels.shape == (6, 2)


class TestRefused:
    def test_unequal_lengths(self) -> None:
        assert refused(labels=Y[:5]) == (
            "my.npz: unequal lengths: 6 features, 5 labels, 6 client numbers; they must be one for each sample."
        )
        assert "4 client numbers" in refused(owners=C[:4])
        assert "3 features" in refused(features=X[:3])

    def test_no_samples(self) -> None:
        assert refused(X[:0], Y[:0], C[:0]) == "my.npz has no samples."

    @pytest.mark.parametrize(
        ("what", "given_"), [("features", (3.0, Y, C)), ("labels", (X, 1, C)), ("client numbers", (X, Y, 0))]
    )
    def test_a_single_value_where_an_array_belongs(self, what: str, given_: tuple[Any, Any, Any]) -> None:
        assert refused(*given_) == f"my.npz: {what} must be an array with one entry for each sample, not a single value."

    def test_labels_out_of_range(self) -> None:
        assert refused(classes=2) == "my.npz: label 2 is out of range for 2 classes (0 to 1)."

    def test_negative_labels(self) -> None:
        assert refused(labels=Y - 1, classes=3) == "my.npz: label -1 is negative; classes are numbered from 0."

    def test_whole_labels_stored_as_floats(self) -> None:
        told = refused(labels=Y.astype(np.float64))
        assert "whole numbers stored as float64" in told
        assert "store them as integers" in told

    def test_real_labels_for_a_number_of_classes(self) -> None:
        assert refused(labels=Y + 0.5, classes=3) == "my.npz: labels are float64, not integers, so they cannot be 3 classes."

    def test_labels_that_are_no_numbers(self) -> None:
        assert "mixes texts with other things" in refused(labels=np.array([1, "a", 2, 0, 1, 2], dtype=object))

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_labels_that_are_not_finite(self, value: float) -> None:
        assert refused(labels=with_value(Y + 0.5, 3, value)) == "my.npz: labels contain NaN or infinity."

    def test_one_hot_labels(self) -> None:
        told = "my.npz: labels look one-hot; give the numbers of the classes (labels.argmax(axis=1))."
        assert refused(labels=np.eye(3, dtype=int)[Y]) == told

    def test_no_classes_for_whole_labels(self) -> None:
        assert refused(classes=0) == "my.npz: 0 classes are too few for integer labels."

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_features_that_are_not_finite_name_the_client(self, value: float) -> None:
        told = refused(features=with_value(X, 4, value))
        assert told == "my.npz: features of sample 4 (client 'bob') contain NaN or infinity."

    def test_a_nan_deep_in_a_large_file_is_found(self) -> None:
        rows = CHECK_ROWS + 5
        features = np.zeros((rows, 1), dtype=np.float16)
        features[CHECK_ROWS + 2] = np.nan
        owners = np.arange(rows) % 2
        assert f"sample {CHECK_ROWS + 2} (client 'ann')" in refused(features, np.zeros(rows, dtype=np.int8), owners)

    def test_features_that_are_no_numbers(self) -> None:
        assert "features must be numbers of one shape, not <U" in refused(features=X.astype(str))
        assert "features must be numbers of one shape, not object" in refused(features=X.astype(object))

    @pytest.mark.parametrize("kind", [">f4", "complex64", "longdouble", ">i2"])
    def test_numbers_that_torch_cannot_take(self, kind: str) -> None:
        assert "features are stored as" in refused(features=X.astype(kind))

    def test_labels_that_torch_cannot_take(self) -> None:
        assert "labels are stored as >i4" in refused(labels=Y.astype(">i4"))

    def test_an_empty_client(self) -> None:
        assert refused(names=["ann", "bob", "cy"]) == "my.npz: client 'cy' is empty; remove it or give it samples."
        assert (
            refused(owners=C * 2, names=["ann", "bob", "cy"]) == "my.npz: client 'bob' is empty; remove it or give it samples."
        )

    def test_duplicate_names(self) -> None:
        assert refused(names=["ann", "ann"]) == (
            "my.npz: the client name 'ann' stands for more than one client; names must differ."
        )

    def test_client_numbers(self) -> None:
        assert refused(owners=C - 1) == "my.npz: client number -1 is negative."
        assert refused(owners=C + 1) == "my.npz: client number 2 has no name: there are 2 client names."
        assert refused(owners=C.astype(float)) == "my.npz: client numbers must be whole numbers, not float64."
        assert refused(owners=C[:, None]) == "my.npz: client numbers must be a flat array, not of shape (6, 1)."

    @pytest.mark.parametrize("fraction", [-0.1, 1.0, math.nan])
    def test_a_test_share_that_is_none(self, fraction: float) -> None:
        assert refused(test_fraction=fraction) == f"test must be a fraction from 0 up to 1, not {fraction}."


class TestSplit:
    @given(st.integers(1, 600))
    @settings(max_examples=60, deadline=None)
    def test_leafs_rule(self, n: int) -> None:
        train, test = split_rows(np.arange(n), 3, 0, 0.1)
        assert len(train) == max(1, int(0.9 * n))
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(n))

    def test_the_permutation_is_the_documented_one(self) -> None:
        order = np.random.default_rng([7, 5]).permutation(20)
        train, test = split_rows(np.arange(100, 120), 5, 7, 0.1)
        assert train.tolist() == (100 + order[:18]).tolist()
        assert test.tolist() == (100 + order[18:]).tolist()

    def test_one_sample_is_for_training(self) -> None:
        train, test = split_rows(np.array([42]), 0, 0, 0.9)
        assert train.tolist() == [42]
        assert test.tolist() == []

    def test_no_test_share_leaves_all_for_training(self) -> None:
        assert from_arrays(X, Y, C, test_fraction=0).test.sizes.tolist() == [0, 0]

    def test_clients_are_split_apart_and_by_the_data_seed(self) -> None:
        owners = np.repeat([0, 1], 50)
        one = from_arrays(np.zeros((100, 1)), np.zeros(100, int), owners, data_seed=1)
        other = from_arrays(np.zeros((100, 1)), np.zeros(100, int), owners, data_seed=2)
        assert one.train[0].tolist() != (one.train[1] - 50).tolist()
        assert one.train[0].tolist() != other.train[0].tolist()
