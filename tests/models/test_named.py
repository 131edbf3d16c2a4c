"""Models by name: what they take, how large they are, and that sequences are read as they should be."""

from __future__ import annotations

import re

import pytest
import torch

from fedgsp.core.errors import InputError
from fedgsp.models import BUILT_IN, SampleKind, fitting, resolve
from fedgsp.models.catalog import summary_of
from fedgsp.models.resnet import resnet18_gn
from fedgsp.models.sequences import char_lstm, tiny_transformer
from fedgsp.models.split import halves_of

IMAGES, TABLE, SERIES = SampleKind((3, 32, 32), 10), SampleKind((12,), 4), SampleKind((20, 3), 5)
TOKENS = SampleKind((16,), 30, (), lambda: 40)
EVERY = SampleKind((16,), 30, (16,), lambda: 40, 0)


def names(kind: SampleKind) -> set[str]:
    return {one.name for one in fitting(kind)}


class TestWhichFit:
    def test_by_the_samples(self) -> None:
        assert names(IMAGES) == {"linear", "mlp", "small_cnn", "leaf_cnn", "resnet18_gn"}
        assert names(TABLE) == {"linear", "mlp"}
        assert names(SERIES) == {"linear", "mlp", "tiny_transformer"}
        assert names(TOKENS) == names(EVERY) == {"char_lstm", "tiny_transformer"}
        assert names(SampleKind((2, 3, 4, 5), 3, (7,))) == set()

    def test_what_goes_in_and_out_and_how_large_it_is(self) -> None:
        found = {one.name: one for one in fitting(IMAGES)}
        assert (found["linear"].shape, found["linear"].outputs, found["linear"].parameters) == ((3, 32, 32), 10, 3072 * 10 + 10)
        assert list(found) == sorted(found, key=lambda name: found[name].parameters)

    @pytest.mark.parametrize("kind", [IMAGES, TABLE, SERIES, TOKENS, EVERY, SampleKind((12,), 0), SampleKind((12,), 0, (3,))])
    def test_the_real_ones_give_what_was_said(self, kind: SampleKind) -> None:
        for one in fitting(kind):
            spec = resolve(one.name, kind.shape, kind.classes, kind.targets, kind.vocabulary, kind.padding)
            model = spec.build().eval()
            x = torch.randint(0, 40, (2, *kind.shape)) if kind.vocabulary() else torch.rand(2, *kind.shape)
            outputs = model(x)
            every = kind.targets if kind.classes else ()
            assert outputs.shape == (2, *every, one.outputs)
            assert sum(p.numel() for p in model.parameters()) == one.parameters
            halves_of(model, x[:1], "the test")

    def test_summaries_tell_the_true_number_of_parameters(self) -> None:
        for name, factory in BUILT_IN.items():
            told = re.search(r"([\d,]+) parameters", summary_of(factory))
            assert told is not None, name
            number = int(told[1].replace(",", ""))
            with torch.device("meta"):
                real = sum(p.numel() for p in factory().parameters())
            assert real == number or (name == "small_cnn" and number == 12_000)

    def test_who_does_not_fit_is_told_who_does(self) -> None:
        with pytest.raises(InputError) as caught:
            resolve("small_cnn", (12,), 4)
        assert str(caught.value) == (
            "the model 'small_cnn' cannot be built for this data: it needs images of shape (H, W) or (C, H, W), and the "
            "samples have shape (12,); what fits: linear (52 parameters), mlp (43,604 parameters)."
        )
        with pytest.raises(InputError, match=r"tokens.*what fits: tiny_transformer \(.*\), char_lstm"):
            resolve("mlp", (16,), 30, (), lambda: 40)
        with pytest.raises(InputError, match="no named model fits"):
            resolve("linear", (2, 3), 3, (9,))

    def test_the_vocabulary_is_only_counted_for_who_asks(self) -> None:
        def never() -> int:
            raise AssertionError

        resolve(lambda shape, classes: torch.nn.Linear(shape[0], classes), (3,), 2, (), never)


class TestSequences:
    @pytest.mark.parametrize("made", [char_lstm, tiny_transformer])
    def test_padding_does_not_change_an_answer(self, made: object) -> None:
        model = made((8,), 3, (), 20, 0).eval()  # type: ignore[operator]
        short = torch.tensor([[5, 6, 7, 0, 0, 0, 0, 0]])
        before = model(short)
        with torch.no_grad():
            embedding = next(m for m in model.modules() if isinstance(m, torch.nn.Embedding))
            embedding.weight[0] += 1.0  # what padding looks like
        assert torch.equal(model(short), before)
        assert not torch.equal(model(torch.tensor([[5, 6, 8, 0, 0, 0, 0, 0]])), before)

    @pytest.mark.parametrize("made", [char_lstm, tiny_transformer])
    def test_a_position_never_sees_what_comes_after_it(self, made: object) -> None:
        model = made((8,), 20, (8,), 20).eval()  # type: ignore[operator]
        one = torch.arange(1, 9)[None]
        other = one.clone()
        other[0, 5:] = 0
        assert torch.allclose(model(one)[:, :5], model(other)[:, :5], atol=1e-6)
        assert not torch.allclose(model(one)[:, 5:], model(other)[:, 5:], atol=1e-3)

    def test_a_sample_of_nothing_but_padding_has_a_finite_answer(self) -> None:
        for made in (char_lstm, tiny_transformer):
            assert made((4,), 3, (), 20, 0)(torch.zeros(1, 4, dtype=torch.int64)).isfinite().all()


def test_resnet_has_no_batch_norm_and_halves_the_picture_three_times() -> None:
    model = resnet18_gn((8, 8), 3)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    assert not list(model.buffers())
    sizes: list[int] = []
    features = model.get_submodule("features")
    for module in features.children():
        module.register_forward_hook(lambda _m, _i, out: sizes.append(out.shape[-1]))
    assert model(torch.rand(2, 8, 8)).shape == (2, 3)
    assert sizes == [8, 8, 8, 8, 8, 4, 4, 2, 2, 1, 1, 1, 512]
