"""FedFusion's server half: smoothing, the extractor kept for evaluation, around any rule."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, beside
from fedgsp.core.tensors import Tensors
from fedgsp.server import IDA, Adam, FusionServer, Mean
from tests.support.small_federations import aggregate


def model(feature: float, gamma: float) -> Tensors:
    return {"features.a": torch.tensor([feature]), "fusion.gamma": torch.tensor([gamma]), "classifier.c": torch.ones(1)}


def test_gamma_moves_a_tenth_of_the_way_each_round() -> None:
    rule = FusionServer()
    state = rule.init(model(1.0, 0.0))
    state = aggregate(rule, state, [model(2.0, 1.0), model(4.0, 3.0)], [1, 1])
    assert state.model["fusion.gamma"].item() == pytest.approx(0.1 * 2)
    assert state.model["features.a"].item() == 3.0
    state = aggregate(rule, state, [model(2.0, 1.0)], [1])
    assert state.model["fusion.gamma"].item() == pytest.approx(0.1 * 1 + 0.9 * 0.2)
    assert state.round == 2


def test_keep_zero_is_the_plain_mean() -> None:
    rule = FusionServer(keep=0.0, eval_ref="new")
    state = aggregate(rule, rule.init(model(1.0, 0.0)), [model(2.0, 1.0), model(4.0, 3.0)], [1, 1])
    assert state.model["fusion.gamma"].item() == 2.0
    assert state.slots == {}


def test_the_extractor_before_the_round_is_kept_for_evaluation() -> None:
    rule = FusionServer(eval_ref="prev")
    state = rule.init(model(1.0, 0.0))
    assert state.evaluated(GLOBAL)[1]["features.a"].item() == 1.0
    state = aggregate(rule, state, [model(2.0, 1.0)], [1])
    assert {name: t.item() for name, t in state.slots[beside(GLOBAL)].items()} == {"features.a": 1.0}
    state = aggregate(rule, state, [model(5.0, 1.0)], [1])
    assert state.slots[beside(GLOBAL)]["features.a"].item() == 2.0
    assert set(state.shared) == set(), "it never leaves the server"


def test_a_convolution_is_not_smoothed() -> None:
    rule = FusionServer()
    start = {"features.a": torch.zeros(1), "fusion.conv.weight": torch.zeros(2)}
    found = aggregate(rule, rule.init(start), [{"features.a": torch.ones(1), "fusion.conv.weight": torch.ones(2)}], [1])
    assert found.model["fusion.conv.weight"].tolist() == [1.0, 1.0]


def test_it_goes_around_any_rule() -> None:
    inside = Adam(lr=0.1)
    rule = FusionServer(inside)
    found = aggregate(rule, rule.init(model(1.0, 0.0)), [model(2.0, 1.0)], [1])
    bare = aggregate(inside, inside.init(model(1.0, 0.0)), [model(2.0, 1.0)], [1])
    assert found.model["features.a"].item() == bare.model["features.a"].item()
    assert found.model["fusion.gamma"].item() == pytest.approx(0.1 * bare.model["fusion.gamma"].item())
    assert {"first moment", "second moment"} <= set(found.slots)
    assert FusionServer(IDA("ida_intrac")).needs == "all"
    assert FusionServer(IDA("ida_intrac")).wants() == {"accuracy"}
    assert FusionServer(Mean()).needs == "sum"


def test_a_model_without_an_operator_is_refused() -> None:
    with pytest.raises(InputError, match="it needs the local rule 'fusion'"):
        FusionServer().init({"features.a": torch.zeros(1)})


@pytest.mark.parametrize(
    ("wrong", "sentence"), [({"keep": 1.0}, "keep must be at least 0 and below 1"), ({"eval_ref": "old"}, "'prev' or 'new'")]
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        FusionServer(**wrong)
