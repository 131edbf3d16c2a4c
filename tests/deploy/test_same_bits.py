"""Without failures a deployment ends in the bits of a local run: for every method that can be deployed at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.client import SGD, Prox
from fedgsp.core.errors import InputError
from fedgsp.core.native import Library
from fedgsp.deploy.settings import check_deployable, why_not
from fedgsp.fast.build import library
from fedgsp.methods import METHODS, named
from fedgsp.run.config import RunConfig
from tests.support import grid_deployments, split_model, tiny

FEATURED = ("fedmmd", "fedfusion", "fedfusion-multi", "fedfusion-single", "moon")
"""Methods that look at a model's features, so they want one that has such."""
DEPLOYABLE = [name for name in METHODS if named(name).preparation is None]


def states(history: list[dict[str, Any]]) -> list[str]:
    return [entry["state"] for entry in history]


@pytest.mark.parametrize("name", [name for name in DEPLOYABLE if name not in FEATURED])
def test_the_journal_is_that_of_a_local_run(name: str, tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, name, clients=6, rounds=2)
    result, local = there.serve(), there.local()
    assert result.status == "finished"
    for ours, theirs in zip(result.history, local.history, strict=True):
        assert {k: v for k, v in ours.items() if k not in ("timings", "present")} == {
            k: v for k, v in theirs.items() if k != "timings"
        }
    assert result.facts["model"] == local.facts["model"]


@pytest.mark.parametrize("name", FEATURED)
def test_methods_that_look_at_features(name: str, tmp_path: Path) -> None:
    there = grid_deployments.deployment(
        tmp_path,
        name,
        clients=4,
        rounds=2,
        model=split_model.NET,
        models=[split_model.NET],
        run={"eval_every": 2},
    )
    assert states(there.serve().history) == states(there.local().history)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in DEPLOYABLE])
def test_the_others_say_why_in_one_sentence(name: str) -> None:
    reason = why_not(named(name))
    assert reason is not None
    assert name in reason
    assert reason.count(". ") == 0
    with pytest.raises(InputError, match="cannot be deployed"):
        check_deployable(RunConfig(method=named(name)))


def test_two_passes_with_states_begin_the_second_where_the_first_ended(tmp_path: Path) -> None:
    from dataclasses import replace

    from fedgsp.plan import Mediators

    method = replace(grid_deployments.method("scaffold"), planner=Mediators(kappa=1.0, gamma=3, passes=2))
    there = grid_deployments.deployment(tmp_path, method, clients=6, rounds=3)
    assert states(there.serve().history) == states(there.local().history)


def test_a_rule_that_fetches_the_rounds_model_gets_it(tmp_path: Path) -> None:
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2, Prox(lr=0.05, batch_size=3, mu=0.5, anchor="global"))
    )
    result, local = there.serve(), there.local()
    assert states(result.history) == states(local.history)
    assert [entry["bytes"] for entry in result.history] == [entry["bytes"] for entry in local.history]


def test_running_means_and_counters_travel_too(tmp_path: Path) -> None:
    whole = SGD(lr=0.05, batch_size=64)  # a batch of one sample has no deviation
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(rule=whole), model=tiny.NORMED)
    assert states(there.serve().history) == states(there.local().history)


def test_a_validation_part_is_carved_out_at_the_sites(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, "fedgsp", data={"validation": 0.3}, run={"evaluate_on": "validation"})
    result = there.serve()
    local = fedgsp.train(there.config.method, there.source, tiny.LINEAR, rounds=3, workers=0, fast="off", validation=0.3)
    assert states(result.history) == states(local.history)
    assert [e["validation_samples"] for e in result.history] == [e["validation"]["samples"] for e in local.history]


@pytest.mark.parametrize("name", ["fedfusion", "moon", "fedmmd", "scaffold"])
def test_rules_that_look_at_features_are_compiled_at_the_sites_too(tmp_path: Path, name: str) -> None:
    there = grid_deployments.deployment(
        tmp_path, name, clients=4, rounds=2, fast="auto", model=split_model.NET, models=[split_model.NET]
    )  # fmt: skip
    result, local = there.serve(), there.local()
    assert all("skipped" not in entry for entry in result.history)
    assert result.run.worker_setup.kernel == local.run.worker_setup.kernel
    assert result.run.worker_setup.kernel.name == (found.name if isinstance(found := library(), Library) else "plain")
    assert states(result.history) == states(local.history)


def test_the_compiled_kernels_are_the_same_everywhere(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, "fedgsp", fast="auto", rounds=2)
    result, local = there.serve(), there.local()
    assert result.run.worker_setup.kernel.name == local.run.worker_setup.kernel.name
    assert states(result.history) == states(local.history)
