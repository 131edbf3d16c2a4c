"""Labels as people have them: numbered from 0 on, told, and their names kept to the pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.data.class_labels import numbered
from fedgsp.report.federation import class_names
from fedgsp.run.clients import read_client_facts

X, OWNER = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.arange(40) // 10


class TestNumbered:
    def test_numbers_that_begin_at_one(self) -> None:
        found = numbered(np.array([1, 4, 2, 4]), None, "labels")
        assert found.labels.tolist() == [0, 2, 1, 2]
        assert found.names == ("1", "2", "4")
        assert found.notes == ("labels were numbered from 0 on: 1 is 0, 2 is 1, 4 is 2.",)

    def test_minus_one_and_one(self) -> None:
        assert numbered(np.array([1, -1]), None, "labels").labels.tolist() == [1, 0]

    def test_texts_and_truth_values(self) -> None:
        assert numbered(np.array(["b", "a"]), None, "labels").names == ("a", "b")
        assert numbered(np.array([True, False]), None, "labels").names == ("False", "True")
        assert numbered(np.array([True, False], dtype=object), None, "labels").labels.tolist() == [1, 0]
        many = numbered(np.array(list("abcdefg")), None, "labels")
        assert many.notes[0].endswith("e is 4, and so on up to g.")

    def test_what_is_numbered_already_stays_as_it_is(self) -> None:
        for labels, classes in ((np.array([0, 1, 3]), None), (np.array([1, 2]), 5), (np.array([0.5]), None)):
            found = numbered(labels, classes, "labels")
            assert found.labels is labels
            assert (found.names, found.notes) == ((), ())

    def test_large_gaps_are_told(self) -> None:
        assert "98 of them have no sample" in numbered(np.array([0, 99]), None, "labels").notes[0]

    def test_a_mixture(self) -> None:
        with pytest.raises(InputError, match="mixes texts"):
            numbered(np.array(["a", 3], dtype=object), None, "labels")


def test_names_and_notes_reach_the_run_and_its_pictures(tmp_path: Path) -> None:
    data = fedgsp.from_arrays(X, np.array(["ill", "well"])[np.arange(40) % 2], OWNER)
    assert (data.classes, data.class_names) == (2, ("ill", "well"))
    result = fedgsp.train("fedavg", data, "linear", rounds=1, workers=0, out=tmp_path / "run")
    assert data.notes[0] in result.run.notes
    facts = read_client_facts(tmp_path / "run")
    assert facts is not None
    assert class_names(facts, 2) == ["ill", "well"]


class TestPositions:
    def test_a_label_at_every_position(self) -> None:
        y = np.full((40, 3), -100)
        y[:, 0], y[:20, 1] = 1, 2
        data = fedgsp.from_arrays(X, y, OWNER, test_fraction=0)
        assert (data.classes, data.target_shape) == (3, (3,))
        assert data.profiles().counts.tolist() == [[0, 10, 10], [0, 10, 10], [0, 10, 0], [0, 10, 0]]

    def test_padding_alone_is_refused(self) -> None:
        with pytest.raises(InputError, match="every position's label is -100"):
            fedgsp.from_arrays(X, np.full((40, 3), -100), OWNER)
        with pytest.raises(InputError, match="label -1 is negative"):
            fedgsp.from_arrays(X, np.full((40, 3), -1), OWNER)


class TestTargets:
    def test_how_a_regression_is_grouped_can_be_chosen(self) -> None:
        y = np.arange(40, dtype=np.float32) + 0.5
        data = fedgsp.from_arrays(X, y, OWNER, test_fraction=0)
        assert data.profiles().counts.shape == (4, 10)
        halves = data.with_target_bins(2)
        assert halves.profiles().counts.tolist() == [[10, 0], [10, 0], [0, 10], [0, 10]]
        assert halves.fingerprint != data.fingerprint
        with pytest.raises(InputError, match="at least 2 parts"):
            data.with_target_bins(1)


class TestStandardised:
    def test_by_all_clients_or_by_each(self) -> None:
        x = X * [1, 100, 0] + [5, -3, 7] + OWNER[:, None]
        data = fedgsp.from_arrays(x.astype(np.float32), np.arange(40) % 2, OWNER)
        rows = data.train.rows
        of_all = data.standardised().features
        wanted = (x[rows] - x[rows].mean(axis=0)) / x[rows].std(axis=0)
        np.testing.assert_allclose(of_all[rows], wanted, atol=1e-4)
        each = data.standardised(each_client=True)
        own = each.features[each.train[2]]
        np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(own.std(axis=0), [1, 1, 0], atol=1e-4)
        assert "each client's own" in each.notes[-1]

    def test_tokens_have_no_mean(self) -> None:
        with pytest.raises(InputError, match="no mean"):
            fedgsp.from_arrays(np.ones((40, 3), dtype=np.int64), np.arange(40) % 2, OWNER).standardised()
