from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.readers.images import load_images
from tests.support.data_files import pictures, png, write_images

pytest.importorskip("PIL")


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_images(str(path), **options)
    return str(caught.value)


def test_clients_and_classes_are_folders(tmp_path: Path) -> None:
    data = load(f"images:{write_images(tmp_path)}:test=0.25")
    assert data.clients == ("client0", "client1", "client2")
    assert data.train.sizes.tolist() == [6, 6, 6]
    assert data.classes == 2
    assert data.features.dtype == np.uint8
    assert np.array_equal(data.features[0], pictures(8, 0)[1])  # client0/cat/1.png comes first
    assert data.labels[:8].tolist() == [0] * 4 + [1] * 4


def test_a_folder_of_classes_is_dealt(tmp_path: Path) -> None:
    root = write_images(tmp_path) / "client0"
    data = load_images(str(root), partition="iid", clients=4)
    assert data.sizes.tolist() == [2, 2, 2, 2]
    assert "To deal ROOT/<class>/<picture> to clients, say partition=" in refused(root)


def test_colour_and_size(tmp_path: Path) -> None:
    place = tmp_path / "ann" / "sky"
    place.mkdir(parents=True)
    (place / "a.png").write_bytes(png(np.zeros((6, 9, 3), dtype=np.uint8)))
    assert load_images(str(tmp_path)).sample_shape == (3, 6, 9)
    assert load_images(str(tmp_path), color="gray", size="4x5").sample_shape == (5, 4)
    (place / "b.png").write_bytes(png(np.zeros((6, 6, 3), dtype=np.uint8)))
    assert "b.png: samples of unequal shape: 3x6x6 here, 3x6x9 before" in refused(tmp_path)


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no directory" in refused(tmp_path / "no")
    assert "has no pictures" in refused(tmp_path)
    assert "color must be" in refused(tmp_path, color="blue")
    assert "size must be" in refused(tmp_path, size="4x5x6")
    (tmp_path / "ann" / "sky").mkdir(parents=True)
    (tmp_path / "ann" / "sky" / "a.png").write_bytes(b"hello")
    assert "a.png: the picture cannot be read" in refused(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert refused(tmp_path).endswith("pip install 'fedgsp[images]'.")


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.data.readers import columns

    monkeypatch.setattr(columns, "LARGEST_IMAGE", 50)
    write_images(tmp_path, clients=1, each=1)
    assert "8x8 pixels is too large" in refused(tmp_path)
