from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.core.tensors import digest
from fedgsp.models import ModelSpec, initial_tensors, leaf_cnn, resolve, small_cnn
from fedgsp.models.catalog import load_initial

SHAPE, CLASSES = (28, 28), 62

MODULE = """
from torch import nn

def plain():
    return nn.Linear(3, 2)

def sized(shape, classes, width=4):
    return nn.Sequential(nn.Linear(shape[0], width), nn.Linear(width, classes))

class Nets:
    inner = staticmethod(plain)

def wrong():
    return "not a module"

def broken(shape):
    raise RuntimeError("it does not like the shape")

number = 5
"""


@pytest.fixture
def mymodels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mymodels.py").write_text(MODULE)
    (tmp_path / "failing.py").write_text("raise NameError('oops')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mymodels", raising=False)
    return "mymodels"


def refused(model: Any, shape: tuple[int, ...] = (3,), classes: int = 2) -> str:
    with pytest.raises(InputError) as caught:
        resolve(model, shape, classes)
    return str(caught.value)


class TestResolve:
    def test_built_in_names(self) -> None:
        spec = resolve("small_cnn", (3, 16, 16), 5)
        assert spec.name == "small_cnn"
        assert spec.build()(torch.zeros(2, 3, 16, 16)).shape == (2, 5)

    def test_built_in_functions_go_by_their_names(self) -> None:
        assert resolve(small_cnn, SHAPE, CLASSES).name == "small_cnn"
        assert resolve(leaf_cnn, SHAPE, CLASSES).name == "leaf_cnn"

    def test_a_model_of_the_users_own(self, mymodels: str) -> None:
        spec = resolve(f"{mymodels}:plain", (3,), 2)
        assert spec.name == "mymodels:plain"
        assert isinstance(spec.build(), nn.Linear)
        assert isinstance(resolve(f"{mymodels}:Nets.inner", (3,), 2).build(), nn.Linear)

    def test_shape_and_classes_are_given_to_those_who_ask(self, mymodels: str) -> None:
        assert resolve(f"{mymodels}:sized", (3,), 9).build()(torch.zeros(1, 3)).shape == (1, 9)

    def test_a_callable(self) -> None:
        spec = resolve(lambda classes: nn.Linear(3, classes), (3,), 4)
        assert spec.build()(torch.zeros(1, 3)).shape == (1, 4)
        assert spec.name.startswith(f"{__name__}:")

    def test_a_module_is_copied_with_its_weights(self) -> None:
        mine = nn.Linear(3, 2)
        spec = resolve(mine, (3,), 2)
        one, other = spec.build(), spec.build()
        assert spec.name == "Linear"
        assert torch.equal(one.get_parameter("weight"), mine.weight)
        with torch.no_grad():
            one.get_parameter("weight").zero_()
        assert other.get_parameter("weight").any()
        assert mine.weight.any()


class TestRefused:
    def test_unknown_names(self) -> None:
        assert refused("smal_cnn") == (
            "unknown model 'smal_cnn': did you mean 'small_cnn'? A model of your own is spelled package.module:callable."
        )

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("no_such_module:net", "cannot import the model 'no_such_module:net': No module named 'no_such_module'."),
            ("mymodels:net", "cannot import the model 'mymodels:net': module 'mymodels' has no attribute 'net'."),
            (":net", "cannot import the model ':net': "),
            (".mymodels:net", "cannot import the model '.mymodels:net': "),
            ("failing:net", "cannot import the model 'failing:net': NameError: oops (failing.py:1, in <module>)."),
            ("mymodels:number", "the model 'mymodels:number' is not callable."),
            ("mymodels:wrong", "the model 'mymodels:wrong' returned str, not an nn.Module."),
            (
                "mymodels:broken",
                "the model 'mymodels:broken' cannot be built for this data: RuntimeError: it does not like the shape "
                "(mymodels.py:17, in broken).",
            ),
        ],
    )
    def test_bad_ones_of_the_users_own(self, mymodels: str, name: str, told: str) -> None:
        assert refused(name).startswith(told)

    def test_a_built_in_one_that_does_not_fit(self) -> None:
        told = refused("leaf_cnn", (10,), 2)
        assert told.startswith("the model 'leaf_cnn' cannot be built for this data: it needs images")

    def test_what_is_no_model_at_all(self) -> None:
        assert refused(5) == "a model is a name, a callable or an nn.Module, not int."


class TestInitialTensors:
    def test_drawn_by_the_seed_alone(self) -> None:
        spec = resolve("small_cnn", SHAPE, CLASSES)
        torch.manual_seed(1)
        one = initial_tensors(spec, 42)
        torch.manual_seed(2)
        assert digest(initial_tensors(spec, 42)) == digest(one)
        assert digest(initial_tensors(spec, 43)) != digest(one)

    def test_the_callers_random_state_is_not_touched(self) -> None:
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        initial_tensors(resolve("small_cnn", SHAPE, CLASSES), 42)
        assert torch.equal(torch.rand(3), expected)

    def test_a_given_module_keeps_its_weights(self) -> None:
        mine = nn.Linear(3, 2)
        assert torch.equal(initial_tensors(resolve(mine, (3,), 2), 0)["weight"], mine.weight)

    def test_buffers_are_part_of_it(self) -> None:
        tensors = initial_tensors(ModelSpec("bn", lambda: nn.BatchNorm1d(4)), 0)
        assert set(tensors) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}

    def test_what_the_rule_adds_is_part_of_it(self) -> None:
        equipped = initial_tensors(ModelSpec("m", lambda: nn.Linear(2, 2)), 0, lambda m: nn.Sequential(m, nn.Linear(2, 2)))
        assert set(equipped) == {"0.weight", "0.bias", "1.weight", "1.bias"}

    @pytest.mark.parametrize("build", [nn.ReLU, lambda: nn.Linear(2, 2).requires_grad_(False)])
    def test_nothing_to_train(self, build: Any) -> None:
        with pytest.raises(InputError, match=r"the model 'm' has no parameters that can be trained"):
            initial_tensors(ModelSpec("m", build), 0)


class TestLoadInitial:
    LIKE = {"a": torch.zeros(2, 3), "n": torch.tensor(0)}  # noqa: RUF012

    def test_weights_come_from_the_file_in_the_models_types(self, tmp_path: Path) -> None:
        given = {"a": torch.arange(6, dtype=torch.float64).reshape(2, 3), "n": torch.tensor(7), "extra": torch.ones(1)}
        save_file(given, tmp_path / "w.safetensors")
        found = load_initial(tmp_path / "w.safetensors", self.LIKE)
        assert set(found) == {"a", "n"}
        assert found["a"].dtype == torch.float32
        assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert found["n"].item() == 7

    def test_a_missing_file(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "w.safetensors", r"there is no weights file .*w\.safetensors\.$")

    def test_a_missing_tensor(self, tmp_path: Path) -> None:
        save_file({"a": torch.zeros(2, 3)}, tmp_path / "w.safetensors")
        self.refused(tmp_path / "w.safetensors", r"has no tensor 'n', so it does not fit the model\.$")

    def test_a_wrong_shape(self, tmp_path: Path) -> None:
        save_file({"a": torch.zeros(3, 2), "n": torch.tensor(0)}, tmp_path / "w.safetensors")
        self.refused(tmp_path / "w.safetensors", r"tensor 'a' has shape \(3, 2\), the model wants \(2, 3\)\.$")

    @pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 100])
    def test_what_is_no_safetensors(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "w.safetensors").write_bytes(content)
        self.refused(tmp_path / "w.safetensors", r"w\.safetensors cannot be read as safetensors")

    def test_a_folder(self, tmp_path: Path) -> None:
        self.refused(tmp_path, r"cannot be read as safetensors")

    def refused(self, path: Path, told: str) -> None:
        with pytest.raises(InputError, match=told):
            load_initial(path, self.LIKE)
