from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from fedgsp.data.arrays import from_arrays
from fedgsp.data.export import export
from fedgsp.data.readers.leaf import load_leaf
from tests.support.data_files import pictures, write_leaf


def federation(dtype: str = "uint8", shape: tuple[int, ...] = (4, 4), regression: bool = False) -> FederatedData:
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 2, (40, *shape)) if dtype == "bool" else rng.normal(size=(40, *shape)) * 50).astype(dtype)
    y = rng.normal(size=(40, 2)) if regression else (np.arange(40) % 7).astype(np.uint8)
    return from_arrays(x, y, np.arange(40) % 5, ["a", "Ünï", 'q"uote', "d", "e"], classes=0 if regression else 9)


@pytest.mark.parametrize("to", ["npz", "leaf"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "bool", "float32", "float64", "float16"])
def test_it_comes_back_exactly(to: str, dtype: str, tmp_path: Path) -> None:
    data = federation(dtype)
    export(data, to, tmp_path / "out")
    again = load(f"{to}:{tmp_path / 'out'}")
    assert again.fingerprint == data.fingerprint
    assert again.clients == data.clients


@pytest.mark.parametrize("to", ["npz", "leaf"])
def test_so_do_targets_validation_parts_subsets_and_divisors(to: str, tmp_path: Path) -> None:
    whole = federation("float64", (3,), regression=True)
    cases = {
        "regression": whole,
        "validation": federation().with_validation(0.3, 1),
        "subset": federation().subset(3, 0),
        "divisor": replace(federation("int64"), divisor=2.0),
        "bytes": replace(federation("uint8"), divisor=1.0),
        "no test": replace(federation(), test=type(whole.test).empty(5)),
        "flat": federation("float32", ()),
    }
    for name, data in cases.items():
        out = tmp_path / name.replace(" ", "-")
        export(data, to, out)
        assert load(f"{to}:{out}").fingerprint == data.fingerprint, name


def test_leaf_to_npz_to_leaf(tmp_path: Path) -> None:
    first = load_leaf(str(write_leaf(tmp_path / "leaf")))
    export(first, "npz", tmp_path / "a.npz")
    second = load(str(tmp_path / "a.npz"))
    export(second, "leaf", tmp_path / "b")
    third = load(f"leaf:{tmp_path / 'b'}")
    assert first.fingerprint == second.fingerprint == third.fingerprint
    (tmp_path / "b" / "fedgsp.json").unlink()  # any reader of LEAF sees the same numbers
    plain = load(f"leaf:{tmp_path / 'b'}")
    assert np.array_equal(plain.features[plain.train[1]], pictures(4, 1))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=6, max_size=6),
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=3, max_size=3, unique=True),
)
def test_any_numbers_and_names(numbers: list[float], names: list[str], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("export")
    x = np.array(numbers, dtype=np.float32).reshape(6, 1)
    data = from_arrays(x, np.arange(6) % 2, np.arange(6) % 3, names, test_fraction=0.5)
    for to in ("npz", "leaf"):
        if to == "npz" and any(name.endswith("\0") for name in names):
            with pytest.raises(InputError, match="zero character"):
                export(data, to, folder / to)
            continue
        export(data, to, folder / to)
        assert load(f"{to}:{folder / to}").fingerprint == data.fingerprint


def test_nothing_is_replaced_and_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        export(federation(), "npz", tmp_path / "there")
    with pytest.raises(InputError, match="npz or leaf"):
        export(federation(), "csv", tmp_path / "new")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    for to in ("npz", "leaf"):
        with pytest.raises(KeyboardInterrupt):
            export(federation(), to, tmp_path / "new", stop)
    assert [file.name for file in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "dtype": "O"}', '{"schema": 1, "dtype": "<f4"}'])
def test_a_damaged_note_beside_leaf_is_refused(tmp_path: Path, text: str) -> None:
    write_leaf(tmp_path)
    (tmp_path / "fedgsp.json").write_text(text)
    with pytest.raises(InputError, match=r"fedgsp\.json"):
        load_leaf(str(tmp_path))
