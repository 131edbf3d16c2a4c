"""How a model declares where its features end, and what is said when it does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.models import leaf_cnn, small_cnn
from fedgsp.models.split import halves_of


class Mine(nn.Module):
    """As the documentation shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(4, 3)
        self.classifier = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.classifier(self.features(x))
        return out


class Prepares(Mine):
    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        return x - 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.prepare(x))


class Shifts(Mine):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x - 1)


class Scales(Mine):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize("model", [Mine(), Prepares()])
def test_a_model_of_ones_own(model: nn.Module) -> None:
    x = torch.randn(5, 4)
    halves = halves_of(model, x[:1], "a test")
    assert torch.equal(halves(x), model(x))


@pytest.mark.parametrize("factory", [small_cnn, leaf_cnn])
@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28)])
def test_the_models_that_come_with_the_package(factory: object, shape: tuple[int, ...]) -> None:
    model = factory((28, 28), 5)  # type: ignore[operator]
    x = torch.randn(2, *shape)
    halves = halves_of(model, x, "a test")
    assert halves.features(halves.prepare(x)).dim() == 4
    assert torch.equal(halves(x), model(x))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Linear(4, 2), "a test needs a model that says where its features end: give Linear two submodules"),
        (Scales(), "'scale' of Scales does not"),
        (Shifts(), "Shifts does something else in forward"),
    ],
)
def test_what_is_refused(model: nn.Module, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        halves_of(model, torch.randn(1, 4), "a test")


def test_halves_that_do_not_fit_the_data_are_refused() -> None:
    with pytest.raises(InputError, match="a test cannot use the halves of Mine on this data"):
        halves_of(Mine(), torch.randn(1, 7), "a test")
