from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.readers.npz import load_npz

X: NDArray[Any] = np.random.default_rng(0).integers(0, 256, (40, 3, 3), dtype=np.uint8)
Y: NDArray[Any] = np.arange(40) % 4
C: NDArray[Any] = np.repeat([0, 1, 2], [5, 15, 20])
NAMES: NDArray[Any] = np.array(["ann", "bob", "cy"])

FEMNIST = next(
    (
        folder / "shared" / "femnist" / "femnist.npz"
        for folder in Path(__file__).resolve().parents
        if (folder / "shared" / "femnist" / "femnist.npz").exists()
    ),
    None,
)
needs_femnist = pytest.mark.skipif(FEMNIST is None, reason="the real FEMNIST (../shared/femnist/femnist.npz) is not here")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.npz"


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_npz(str(path), **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_generic_names(file: Path) -> None:
    np.savez(file, features=X, labels=Y, client_index=C, clients=NAMES)
    data = load_npz(str(file))
    assert data.clients == ("ann", "bob", "cy")
    assert data.classes == 4
    assert data.sizes.tolist() == [5, 15, 20]
    assert data.train.sizes.tolist() == [4, 13, 18]
    assert np.array_equal(data.features, X)
    assert np.array_equal(data.labels, Y)


def test_the_femnist_layout_is_the_same_federation(file: Path, tmp_path: Path) -> None:
    np.savez(file, features=X, labels=Y, client_index=C, clients=NAMES)
    index = C.astype(np.uint16)
    np.savez_compressed(tmp_path / "leaf.npz", images=X, labels=Y, writer_index=index, writers=NAMES, complete=NAMES)
    assert load_npz(str(tmp_path / "leaf.npz")).fingerprint == load_npz(str(file)).fingerprint


def test_names_may_be_missing_or_bytes(file: Path, tmp_path: Path) -> None:
    np.savez(file, features=X, labels=Y, client_index=C)
    assert load_npz(str(file)).clients == ("0", "1", "2")
    np.savez(tmp_path / "b.npz", features=X, labels=Y, client_index=C, clients=NAMES.astype(bytes))
    assert load_npz(str(tmp_path / "b.npz")).clients == ("ann", "bob", "cy")


def test_arrays_are_memory_mapped(file: Path) -> None:
    np.savez(file, features=X, labels=Y, client_index=C)
    assert isinstance(load_npz(str(file)).features, np.memmap)


def test_a_file_that_changed_is_read_again(file: Path) -> None:
    np.savez(file, features=X, labels=Y, client_index=C)
    before = load_npz(str(file)).fingerprint
    np.savez(file, features=255 - X, labels=Y, client_index=C)
    assert load_npz(str(file)).fingerprint != before


def test_options(file: Path) -> None:
    np.savez(file, features=X, labels=Y, client_index=C, clients=NAMES)
    assert load_npz(str(file), classes=10).classes == 10
    assert load_npz(str(file), test=0.5).train.sizes.tolist() == [2, 7, 10]
    assert load_npz(str(file), min_samples=15).clients == ("bob", "cy")
    assert load_npz(str(file), seed=1).fingerprint != load_npz(str(file), seed=2).fingerprint


def test_the_fingerprint_of_each_set_of_options_is_its_own(file: Path) -> None:
    """Fingerprints are remembered beside the cached arrays: one must not be taken for another's."""
    np.savez(file, features=X, labels=Y, client_index=C, clients=NAMES)
    sets: list[dict[str, Any]] = [{}, {"classes": 10}, {"test": 0.5}, {"min_samples": 15}]
    seen = [load_npz(str(file), **options).fingerprint for options in sets]
    assert len(set(seen)) == 4
    assert load_npz(str(file), classes=10).fingerprint == seen[1]


class TestRefused:
    def test_a_missing_file(self, file: Path) -> None:
        assert refused(file) == f"there is no data file {file}."

    def test_a_folder(self, tmp_path: Path) -> None:
        assert refused(tmp_path) == f"cannot read {tmp_path}: Is a directory."

    @pytest.mark.parametrize("key", ["features", "labels", "client_index"])
    def test_a_missing_array(self, file: Path, key: str) -> None:
        arrays = {"features": X, "labels": Y, "client_index": C}
        del arrays[key]
        np.savez(file, **arrays)  # type: ignore[arg-type]
        told = refused(file)
        assert f"has no array '{key}" in told
        assert "it has: " in told

    @pytest.mark.parametrize("content", [b"", b"hello, world", b"PK\x03\x04 not really"])
    def test_what_is_no_archive(self, file: Path, content: bytes) -> None:
        file.write_bytes(content)
        assert refused(file) == f"{file} is not an .npz archive; numpy.savez writes one."

    def test_a_single_array(self, file: Path) -> None:
        with file.open("wb") as out:
            np.save(out, X)
        assert refused(file) == f"{file} is not an .npz archive; numpy.savez writes one."

    @pytest.mark.parametrize("key", ["features", "clients"])
    def test_pickled_objects(self, file: Path, key: str) -> None:
        arrays: dict[str, Any] = {"features": X, "labels": Y, "client_index": C, "clients": NAMES}
        arrays[key] = arrays[key].astype(object)
        np.savez(file, **arrays)
        assert refused(file) == f"{file}: the array '{key}' cannot be read: it holds pickled objects."

    def test_a_damaged_archive(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y, client_index=C)
        raw = bytearray(file.read_bytes())
        raw[300:340] = bytes(40)
        file.write_bytes(raw)
        assert "the array 'features' cannot be read" in refused(file)

    def test_a_cut_archive(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y, client_index=C)
        file.write_bytes(file.read_bytes()[:-60])
        assert "not an .npz archive" in refused(file)

    def test_names_in_a_table(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y, client_index=C, clients=NAMES[:, None])
        assert "names must be a flat array, not of shape (3, 1)" in refused(file)

    def test_nobody_with_enough_samples(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y, client_index=C)
        assert refused(file, min_samples=21) == f"{file}: no client has 21 samples."

    def test_an_unknown_federation(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y, client_index=C)
        assert "did you mean 'femnist-368'?" in refused(file, federation="femnist368")

    def test_femnist_368_of_other_data(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y, client_index=C, clients=NAMES)
        told = refused(file, federation="femnist-368")
        assert "526 named writers of at least 20 samples" in told
        assert "this one has 1." in told

    def test_bad_content_leaves_no_cache_entry_that_hides_it(self, file: Path) -> None:
        np.savez(file, features=X, labels=Y[:-1], client_index=C)
        assert refused(file) == refused(file)


@needs_femnist
class TestFemnist368:
    """The standard federation, worked out again here from the words of the README."""

    def test_its_fingerprint(self) -> None:
        data = load_npz(str(FEMNIST), federation="femnist-368")
        assert data.fingerprint == "1d82c2ecab26bbfd290003f9e6107ed9a3fc8be1a949ef39adda7dcbb1d13446"

    def test_it_is_what_the_readme_says(self) -> None:
        assert FEMNIST is not None
        with np.load(FEMNIST) as archive:
            raw = {name: archive[name] for name in archive.files}
        data = load_npz(str(FEMNIST), federation="femnist-368")
        samples: dict[str, list[int]] = {str(writer): [] for writer in raw["writers"]}
        for row, writer in enumerate(raw["writer_index"]):
            samples[str(raw["writers"][writer])].append(row)
        enough = sorted(writer for writer, rows in samples.items() if len(rows) >= 20)
        assert len(enough) == 526
        chosen = sorted(int(i) for i in np.random.default_rng(0).permutation(526)[:368])
        assert data.clients == tuple(enough[i] for i in chosen)
        assert len(data) == 368
        assert data.classes == 62
        for client, i in enumerate(chosen):
            rows = samples[enough[i]]
            order = np.random.default_rng([0, i]).permutation(len(rows))
            cut = max(1, int(0.9 * len(rows)))
            assert data.train[client].tolist() == [rows[k] for k in order[:cut]]
            assert data.test[client].tolist() == [rows[k] for k in order[cut:]]
        assert np.array_equal(data.features[data.test[0]], raw["images"][data.test[0]])
        assert np.array_equal(data.labels, raw["labels"])
        assert data.divisor == 255.0

    def test_all_570_writers(self) -> None:
        data = load_npz(str(FEMNIST))
        assert len(data) == 570
        assert data.samples == 60_743
