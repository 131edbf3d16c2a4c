"""Classifiers of transformers and adapters of PEFT, made from a config: as they are, and charged for what they train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.models import initial_tensors, resolve
from fedgsp.models.state import frozen_names, load_tensors, model_tensors

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


def sentences(clients: int = 4) -> fedgsp.FederatedData:
    """Tokens 1..19 with padding 0 at the end; the class is whether token 7 is there."""
    rng = np.random.default_rng(0)
    x = rng.integers(8, 20, (80, 6))
    y = np.arange(80) % 2
    x[y == 1, 0] = 7
    x[::3, 4:] = 0
    return fedgsp.from_arrays(x, y, np.arange(80) // (80 // clients), test_fraction=0.2)


def classifier() -> Any:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, pad_token_id=0,
        max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def adapted() -> Any:
    settings = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    return peft.get_peft_model(classifier(), settings)


def test_the_output_object_is_understood_and_padding_is_masked() -> None:
    built = resolve(classifier, (6,), 2).build().eval()
    tokens = torch.tensor([[7, 8, 9, 10, 0, 0]])
    outputs = built(tokens)
    plain = classifier().eval()
    plain.load_state_dict(built.state_dict())
    wanted = plain(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    assert torch.equal(outputs, wanted)
    assert not torch.equal(outputs, plain(input_ids=tokens).logits)


def test_a_classifier_as_it_is_trains_the_same_for_any_number_of_workers() -> None:
    torch.manual_seed(0)
    model = classifier()
    alone, several = (fedgsp.train("fedgsp", sentences(), model, rounds=1, lr=0.1, workers=w) for w in (0, 2))
    assert alone.state.digest() == several.state.digest()
    assert set(alone.state.model) == set(model.state_dict())


class TestAdapters:
    def test_the_frozen_base_is_neither_summed_sent_nor_charged(self) -> None:
        torch.manual_seed(0)
        model = adapted()
        result = fedgsp.train("fedavg", sentences(), model, rounds=1, lr=0.1, workers=0)
        trains = {name for name, p in model.named_parameters() if p.requires_grad}
        assert set(result.state.model) == trains
        size = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert result.history[-1]["bytes"] == 2 * 4 * size  # down and up, one client a round, four bytes a number
        whole = result.model()
        for name, p in model.named_parameters():
            if not p.requires_grad:
                assert torch.equal(whole.get_parameter(name), p)

    def test_a_base_that_is_drawn_is_the_same_in_every_worker(self) -> None:
        alone, several = (fedgsp.train("fedgsp", sentences(), adapted, rounds=1, lr=0.1, workers=w) for w in (0, 2))
        assert alone.state.digest() == several.state.digest()
        one, other = alone.model(), several.model()
        assert all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


class TestFrozen:
    def model(self) -> nn.Module:
        made = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        made[0].requires_grad_(False)
        return made

    def test_what_is_frozen_is_no_part_of_the_state(self) -> None:
        assert frozen_names(self.model()) == {"0.weight", "0.bias"}
        assert set(model_tensors(self.model())) == {"1.weight", "1.bias"}
        assert set(initial_tensors(resolve(self.model, (3,), 2), 0)) == {"1.weight", "1.bias"}

    def test_where_nothing_is_trained_all_of_it_is(self) -> None:
        still = self.model().requires_grad_(False)
        assert len(model_tensors(still)) == 4

    def test_loading_may_leave_out_what_is_frozen_and_nothing_else(self) -> None:
        model, other = self.model(), self.model()
        load_tensors(model, model_tensors(other))
        assert torch.equal(model.get_parameter("1.weight"), other.get_parameter("1.weight"))
        assert not torch.equal(model.get_parameter("0.weight"), other.get_parameter("0.weight"))
        with pytest.raises(ValueError, match=r"\['1.weight'\]"):
            load_tensors(model, {"1.bias": torch.zeros(2)})
