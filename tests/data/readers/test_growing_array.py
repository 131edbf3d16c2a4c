from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedgsp.data.readers.growing_array import GrowingArray


def test_rows_become_an_npy_file_that_numpy_maps(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path, "a")
    array.append(np.arange(6, dtype=np.int32).reshape(2, 3))
    array.append(np.arange(3, dtype=np.int32).reshape(1, 3))
    array.finish((3, 1))
    read = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert read.shape == (3, 3, 1)
    assert read.reshape(3, 3).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]


def test_rows_of_another_shape_or_kind_are_a_bug(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path, "a")
    array.append(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="cannot follow"):
        array.append(np.zeros((1, 4)))


def test_after_a_kill_it_goes_on_from_the_durable_state(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path, "a")
    array.append(np.zeros((2, 2), dtype=np.uint8))
    state = array.durable()
    array.append(np.ones((5, 2), dtype=np.uint8))
    array.close()  # killed: those five rows were never made durable
    again = GrowingArray(tmp_path, "a", state)
    again.append(np.full((1, 2), 7, dtype=np.uint8))
    again.finish()
    assert np.load(tmp_path / "a.npy").tolist() == [[0, 0], [0, 0], [7, 7]]


def test_a_change_of_dtype_leaves_the_durable_file_alone(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path, "a")
    array.append(np.full((3, 1), 255, dtype=np.uint8))
    state = array.durable()
    array.convert(lambda block: block.astype(np.float32) / 255)
    array.append(np.full((1, 1), 0.5, dtype=np.float32))
    array.close()  # killed before the next durable state
    again = GrowingArray(tmp_path, "a", state)
    assert np.asarray(again.mapped()).tolist() == [[255]] * 3
    again.convert(lambda block: block.astype(np.float32) / 255)
    again.finish()
    assert np.load(tmp_path / "a.npy").tolist() == [[1.0]] * 3


def test_a_file_shorter_than_its_state_is_refused(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path, "a")
    array.append(np.zeros((4, 1)))
    state = array.durable()
    array.close()
    state["rows"] = 10
    with pytest.raises(ValueError, match="shorter"):
        GrowingArray(tmp_path, "a", state)


def test_nothing_at_all_is_an_empty_array(tmp_path: Path) -> None:
    GrowingArray(tmp_path, "a").finish((2,))
    assert np.load(tmp_path / "a.npy").shape == (0, 2)
