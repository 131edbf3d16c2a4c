from __future__ import annotations

import numpy as np
import pytest

from fedgsp.evaluate import ClientScores, SampleScores, Summary, per_client, summarise


def sampled(accuracy: list[float], loss: list[float]) -> SampleScores:
    return SampleScores(np.array(loss, dtype=np.float32), {"accuracy": np.array(accuracy, dtype=np.float32)})


# Three clients with 2, 1 and 4 test samples and 20, 100 and 30 samples in all.
SCORES = sampled([1, 0, 1, 0, 0, 0, 1], [0.5, 1.5, 0.25, 1, 2, 3, 2])
SIZES = np.array([2, 1, 4])
WEIGHTS = np.array([20, 100, 30])


def clients() -> ClientScores:
    return per_client(SCORES, np.array([3, 5, 8]), SIZES, WEIGHTS)


def summary() -> Summary:
    found = summarise(clients())
    assert found is not None
    return found


def test_every_client_has_its_own_means() -> None:
    found = clients()
    assert found.clients.tolist() == [3, 5, 8]
    assert found.values["accuracy"].tolist() == [0.5, 1.0, 0.25]
    assert found.values["loss"].tolist() == [1.0, 0.25, 2.0]


def test_leaf_weighs_clients_by_all_their_samples() -> None:
    """As LEAF: (20 * 0.5 + 100 * 1 + 30 * 0.25) / 150, not correct / total."""
    assert summary().leaf["accuracy"] == pytest.approx(117.5 / 150, rel=1e-12)
    assert summary().leaf["loss"] == pytest.approx((20 + 25 + 60) / 150, rel=1e-12)


def test_the_plain_figures_count_every_test_sample_once() -> None:
    assert summary().plain["accuracy"] == pytest.approx(3 / 7, rel=1e-12)
    assert summary().plain["loss"] == pytest.approx(10.25 / 7, rel=1e-12)
    assert (summary().clients, summary().samples) == (3, 7)


def test_quantiles_are_over_clients() -> None:
    assert summary().quantiles["accuracy"] == pytest.approx(
        {"0": 0.25, "0.1": 0.3, "0.25": 0.375, "0.5": 0.5, "0.75": 0.75, "0.9": 0.9, "1": 1.0}
    )
    assert summary().quantiles["loss"]["1"] == 2.0


def test_clients_without_test_samples_are_left_out_of_everything() -> None:
    with_idle = per_client(SCORES, np.array([3, 4, 5, 8, 9]), np.array([2, 0, 1, 4, 0]), np.array([20, 500, 100, 30, 500]))
    assert with_idle.clients.tolist() == [3, 5, 8]
    assert summarise(with_idle) == summary()


def test_nobody_with_a_test_sample_is_nothing_to_report() -> None:
    assert summarise(per_client(sampled([], []), np.array([1, 2]), np.array([0, 0]), np.array([5, 5]))) is None


def test_what_the_journal_gets() -> None:
    history = summary().as_dict()
    assert history["accuracy"] == summary().leaf["accuracy"]
    assert history["accuracy_plain"] == summary().plain["accuracy"]
    assert history["loss"] == summary().leaf["loss"]
    assert history["loss_plain"] == summary().plain["loss"]
    assert (history["clients"], history["samples"]) == (3, 7)
    assert set(history) == {"accuracy", "accuracy_plain", "loss", "loss_plain", "quantiles", "clients", "samples"}
