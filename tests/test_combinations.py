"""Names and config files that combine parts: what they give, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import Dyn, Fusion, Prox, Scaffold
from fedgsp.core.errors import InputError
from fedgsp.method import Method
from fedgsp.methods import named, words
from fedgsp.models import small_cnn
from fedgsp.plan import GreedyKL
from fedgsp.server import IDA, Adam, Clustered, FusionServer, Nova, ScaffoldServer
from tests.support.small_federations import fedavg, images


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fedgps", "unknown method 'fedgps': did you mean 'fedgsp'"),
        ("fedgsp+yogy", "unknown part 'yogy' in the method 'fedgsp\\+yogy': did you mean 'yogi'"),
        ("fedgsp+adam+yogi", "has two server rules"),
        ("fedadam+yogi", "has two server rules"),
        ("fedprox+mmd", "has two local rules"),
        ("fedfusion+adam", "has two server rules"),
        ("fedgsp+dyn+adam", "has two server rules"),
        ("scaffold+prox", "has two local rules"),
        ("astraea+meta", "has two preparations"),
    ],
)
def test_names_that_make_no_sense(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        named(name)


def test_a_name_puts_parts_in_place_and_leaves_the_rest() -> None:
    plain, combined = named("fedgsp"), named("fedgsp+fusion-multi+adam")
    assert combined.planner == plain.planner
    assert combined.local == Fusion(operator="multi")
    assert combined.server == FusionServer(Adam())
    assert named("fedgsp+adam+fusion-multi").server == combined.server, "in any order"
    assert combined.name == "fedgsp+fusion-multi+adam"
    assert isinstance(named("stp-kl").planner.grouper, GreedyKL)  # type: ignore[attr-defined]
    for word in words():
        named(f"fedgsp+{word}").check()


DATA = images(each=12)


class NoSplit(nn.Module):
    """A model that does not say where its features end."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x.flatten(1))
        return out


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        (named("fedfusion"), {"model": NoSplit}, "'fusion' needs a model that says where its features end"),
        (fedavg(IDA("ida_intrac")), {}, "the local rule 'sgd' does not report; set local.report_accuracy = true"),
        (fedavg(Clustered()), {}, "each must train in every round, alone"),
        (
            fedavg(local=Scaffold()),
            {},
            "'scaffold' is one half of a method: it needs the server rule 'scaffold', and not 'mean'",
        ),
        (fedavg(ScaffoldServer()), {}, "'scaffold' is one half of a method: it needs the local rule 'scaffold', and not 'sgd'"),
        (fedavg(local=Dyn()), {}, "'dyn' is one half of a method: it needs the server rule 'dyn', and not 'mean'"),
        (
            fedavg(FusionServer(ScaffoldServer())),
            {},
            "'fused' is one half of a method: it needs the local rule 'scaffold', and not 'sgd'",
        ),
        (fedavg(Nova()), {}, "the local rule 'sgd' does not report; set local.report_steps = true"),
        (named("moon"), {"model": NoSplit}, "'moon' needs a model that says where its features end"),
        (fedavg(FusionServer()), {}, "'fused' is FedFusion's server half: it needs the local rule 'fusion'"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_before_anything_starts(
    method: Method, options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        fedgsp.train(method, DATA, options.get("model", small_cnn), rounds=1, workers=0, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_accuracy_of_a_task_without_one_is_refused() -> None:
    numbers = fedgsp.from_arrays(np.random.default_rng(0).normal(size=(8, 2)), np.linspace(0.1, 1, 8), np.arange(8) // 4)
    with pytest.raises(InputError, match="the task 'regression' has no such metric"):
        fedgsp.train(named("ida-intrac"), numbers, lambda: nn.Linear(2, 1), rounds=1, workers=0)


def test_more_chains_than_can_be_summed_exactly_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.run import checks

    monkeypatch.setattr(checks, "MOST_ADDENDS_BITS", 1)
    with pytest.raises(InputError, match=r"a round of 3 chains cannot be summed exactly, 2 can; .*groups, as fedgsp does"):
        fedgsp.train(named("fedavg"), DATA, rounds=1, workers=0)
    fedgsp.train(named("cwt"), DATA, rounds=1, workers=0)


def test_a_disk_without_room_for_a_rounds_results_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.run import checks

    monkeypatch.setattr(checks, "room", lambda: ("/scratch", 1000))
    fedgsp.train(named("fedavg"), DATA, rounds=1, workers=0)
    with pytest.raises(InputError, match="the server rule keeps the 3 results of a round in /scratch"):
        fedgsp.train(named("ida"), DATA, rounds=1, workers=0)


def test_a_config_file_can_spell_any_combination(tmp_path: Path) -> None:
    from fedgsp.run.config import parse_toml

    text = """
    [method]
    name = "fedgsp"
    local = {kind = "prox", mu = 0.5, anchor = "global", lr = 0.02}
    server = {kind = "fused", eval_ref = "new", server = {kind = "yogi", lr = 0.1}}
    preparation = {kind = "augment-zscore", tau_d = 3.5}
    """
    method = parse_toml(text, "here").method
    assert method.local == Prox(mu=0.5, anchor="global", lr=0.02)
    assert method.server.server.lr == 0.1  # type: ignore[attr-defined]
    assert method.preparation.tau_d == 3.5  # type: ignore[union-attr]
    for wrong, sentence in (
        ("local = {kind = 'prox', mu = 'big'}", "method.local.mu must be a number, not 'big'"),
        ("local = {kind = 'prox', muu = 1}", "has no parameter 'muu': did you mean 'mu'"),
        ("server = {kind = 'adam', beta2 = 1.0}", "beta2 must be at least 0 and below 1"),
        ("local = {kind = 'fusion', operator = 'sum'}", "operator must be one of 'conv', 'multi', 'single', not 'sum'"),
    ):
        with pytest.raises(InputError, match=sentence):
            parse_toml(f"[method]\nname = 'fedgsp'\n{wrong}", "here")
