from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import REGRESSION_BINS, FederatedData, Split


def federation(sizes: tuple[int, ...] = (10, 4, 7), classes: int = 3, seed: int = 0) -> FederatedData:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    features = rng.integers(0, 256, (len(owner), 2, 2), dtype=np.uint8)
    names = [f"c{k}" for k in range(len(sizes))]
    return from_arrays(features, rng.integers(0, classes, len(owner)), owner, names, classes=classes)


def rows_of(data: FederatedData, client: int) -> set[int]:
    return {int(row) for part in (data.train, data.validation, data.test) for row in part[client]}


def restored(data: FederatedData, order: NDArray[np.int64]) -> FederatedData:
    """The same federation with its samples stored in another order."""
    where = np.argsort(order)

    def moved(part: Split) -> Split:
        return Split(where[part.rows], part.offsets)

    return replace(
        data, features=data.features[order], labels=data.labels[order],
        train=moved(data.train), validation=moved(data.validation), test=moved(data.test),
    )  # fmt: skip


class TestPart:
    def test_every_client_has_its_rows(self) -> None:
        part = Split.of([np.array([5, 3]), np.array([], dtype=np.int64), np.array([9])])
        assert [rows.tolist() for rows in part] == [[5, 3], [], [9]]
        assert part.sizes.tolist() == [2, 0, 1]
        assert len(part) == 3

    def test_of_nobody_and_empty_parts(self) -> None:
        assert len(Split.of([])) == 0
        assert Split.empty(3).sizes.tolist() == [0, 0, 0]

    def test_take_keeps_the_order_asked_for(self) -> None:
        part = Split.of([np.array([1]), np.array([2, 3]), np.array([4])])
        assert [rows.tolist() for rows in part.take([2, 1])] == [[4], [2, 3]]


class TestProfiles:
    def test_counts_are_of_the_training_samples_only(self) -> None:
        data = federation()
        profiles = data.profiles()
        for client in range(3):
            own = data.labels[data.train[client]]
            assert profiles.counts[client].tolist() == [int((own == c).sum()) for c in range(3)]
        assert profiles.sizes.tolist() == data.train.sizes.tolist() == [9, 3, 6]

    def test_classes_that_nobody_has_are_counted_too(self) -> None:
        data = from_arrays(np.zeros((4, 1), dtype=np.float32), np.zeros(4, dtype=int), np.array([0, 0, 1, 1]), classes=5)
        assert data.profiles().counts.shape == (2, 5)

    def test_some_clients_only(self) -> None:
        data = federation()
        some = data.profiles(np.array([2, 0]))
        assert some.clients.tolist() == [2, 0]
        assert some.counts.tolist() == data.profiles().counts[[2, 0]].tolist()
        assert some.sizes.tolist() == [6, 9]

    def test_real_targets_are_counted_in_quantile_bins(self) -> None:
        targets = np.linspace(0.05, 7.3, 200)
        data = from_arrays(np.zeros((200, 1)), targets, np.repeat([0, 1], 100), test_fraction=0)
        counts = data.profiles().counts
        assert counts.shape == (2, REGRESSION_BINS)
        assert counts.sum(axis=0).tolist() == [20] * REGRESSION_BINS
        assert counts[0].tolist() == [20] * 5 + [0] * 5  # the first client has the smaller targets


class TestSelection:
    def test_select_keeps_order_names_and_rows(self) -> None:
        data = federation()
        chosen = data.select([2, 0])
        assert chosen.clients == ("c2", "c0")
        assert rows_of(chosen, 0) == rows_of(data, 2)
        assert rows_of(chosen, 1) == rows_of(data, 0)
        assert chosen.sizes.tolist() == [7, 10]

    def test_a_subset_is_random_sorted_and_repeatable(self) -> None:
        data = federation(sizes=(2,) * 30)
        names = data.subset(7, 3).clients
        assert len(names) == 7
        assert list(names) == sorted(names, key=lambda name: int(name[1:]))
        assert names == data.subset(7, 3).clients
        assert names != data.subset(7, 4).clients
        assert names != data.clients[:7]

    def test_sizes_and_samples_count_all_parts(self) -> None:
        data = federation().with_validation(0.3, 0)
        assert data.sizes.tolist() == [10, 4, 7]
        assert data.samples == 21


class TestValidation:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(1, 25), min_size=1, max_size=6), st.floats(0, 0.999), st.integers(0, 2**32 - 1))
    def test_it_comes_out_of_train_and_never_empties_it(self, sizes: list[int], fraction: float, seed: int) -> None:
        data = federation(tuple(sizes))
        carved = data.with_validation(fraction, seed)
        for client in range(len(sizes)):
            before = data.train[client].tolist()
            train, held = carved.train[client].tolist(), carved.validation[client].tolist()
            assert sorted(train + held) == sorted(before)
            assert len(train) >= 1
            assert abs(len(held) - fraction * len(before)) <= 1
            assert carved.test[client].tolist() == data.test[client].tolist()

    def test_it_is_drawn_by_the_seed(self) -> None:
        data = federation((40, 40))
        assert data.with_validation(0.5, 1).validation.rows.tolist() == data.with_validation(0.5, 1).validation.rows.tolist()
        assert data.with_validation(0.5, 1).validation.rows.tolist() != data.with_validation(0.5, 2).validation.rows.tolist()

    def test_every_client_has_a_draw_of_its_own(self) -> None:
        data = from_arrays(np.zeros((80, 1)), np.zeros(80, int), np.repeat([0, 1], 40), test_fraction=0)
        carved = data.with_validation(0.5, 0)
        places = [np.flatnonzero(np.isin(data.train[k], carved.validation[k])).tolist() for k in range(2)]
        assert places[0] != places[1]

    def test_none_by_default(self) -> None:
        assert federation().validation.sizes.tolist() == [0, 0, 0]


class TestHoldout:
    @given(st.integers(1, 20), st.data())
    @settings(max_examples=40, deadline=None)
    def test_clients_train_or_are_held_out(self, clients: int, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, clients))
        roster, held = federation((2,) * clients).holdout(count, 5)
        assert len(held) == count
        assert sorted([*roster.tolist(), *held.tolist()]) == list(range(clients))
        assert roster.tolist() == sorted(roster.tolist())
        assert held.tolist() == sorted(held.tolist())

    def test_it_is_drawn_by_the_seed(self) -> None:
        data = federation((2,) * 40)
        assert data.holdout(10, 1)[1].tolist() == data.holdout(10, 1)[1].tolist()
        assert data.holdout(10, 1)[1].tolist() != data.holdout(10, 2)[1].tolist()


class TestFingerprint:
    @settings(max_examples=20, deadline=None)
    @given(st.permutations(range(21)))
    def test_how_samples_are_stored_does_not_matter(self, order: list[int]) -> None:
        data = federation()
        assert restored(data, np.array(order)).fingerprint == data.fingerprint

    def test_golden(self) -> None:
        """Recorded runs name it: it may only change together with the tag at its head."""
        features = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
        data = from_arrays(features, np.array([0, 1, 0, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 1]), ["ann", "bob"])
        assert data.fingerprint == "d48514c2cfbe6385d90cf7ef046af001bdecda62bb5573673ad0335a13416f2a"

    def test_everything_that_training_sees_matters(self) -> None:
        data = federation()
        pixel, label = data.features.copy(), data.labels.copy()
        pixel[int(data.test[1][0]), 0, 0] ^= 1
        label[int(data.train[2][0])] = (label[int(data.train[2][0])] + 1) % 3
        others = [
            replace(data, features=pixel),
            replace(data, labels=label),
            replace(data, clients=("c0", "c1", "x")),
            replace(data, classes=4),
            replace(data, divisor=1.0),
            replace(data, features=data.features.astype(np.int16)),
            replace(data, train=data.test, test=data.train),
            replace(data, train=Split(data.train.rows[::-1].copy(), data.train.offsets)),
            data.with_validation(0.3, 0),
            data.with_validation(0.3, 1),
            data.select([1, 0, 2]),
            data.select([0, 1]),
        ]
        seen = [other.fingerprint for other in (data, *others)]
        assert len(set(seen)) == len(seen)

    def test_a_client_without_samples_in_a_part_is_fine(self) -> None:
        assert len(federation((1, 1)).fingerprint) == 64

    def test_it_is_remembered_in_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = replace(federation(), memo=tmp_path)
        plain = federation().fingerprint
        assert data.fingerprint == plain
        monkeypatch.setattr(FederatedData, "_hash_samples", lambda self: "hashed again")
        assert replace(federation(), memo=tmp_path).fingerprint == plain
        assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".tmp")] == []

    def test_what_is_remembered_is_told_apart(self, tmp_path: Path) -> None:
        one = replace(federation(), memo=tmp_path)
        others: list[FederatedData] = [
            replace(one, classes=9), replace(one, divisor=2.0), one.select([0]), one.with_validation(0.5, 0),
        ]  # fmt: skip
        for data in (one, *others):
            assert data.fingerprint == replace(data, memo=None).fingerprint

    def test_a_damaged_memo_is_not_believed(self, tmp_path: Path) -> None:
        right = replace(federation(), memo=tmp_path).fingerprint
        (memo,) = tmp_path.iterdir()
        memo.write_text("")
        assert replace(federation(), memo=tmp_path).fingerprint == right

    def test_a_memo_that_cannot_be_written_only_costs_time(self, tmp_path: Path) -> None:
        nowhere = tmp_path / "gone"
        assert replace(federation(), memo=nowhere).fingerprint == federation().fingerprint


def test_sample_shape_is_that_of_one_sample() -> None:
    assert federation().sample_shape == (2, 2)
    assert from_arrays(np.zeros((3, 5)), np.zeros(3, int), np.zeros(3, int)).sample_shape == (5,)
