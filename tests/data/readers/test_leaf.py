from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import load
from fedgsp.data.readers.leaf import load_leaf
from tests.support.data_files import SHARED, pictures, pixels, shard, write_leaf


def refused(folder: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_leaf(str(folder), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rewrite(file: Path, change: Any) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.fixture
def leaf(tmp_path: Path) -> Path:
    return write_leaf(tmp_path / "leaf")


@pytest.fixture
def first(leaf: Path) -> Path:
    return leaf / "train" / "all_data_0_train_9.json"


def test_the_split_is_kept_and_pixels_are_bytes(leaf: Path) -> None:
    data = load_leaf(str(leaf))
    assert data.clients == ("f0000_00", "f0001_01", "f0002_02")
    assert data.train.sizes.tolist() == [6, 4, 9]
    assert data.test.sizes.tolist() == [2, 2, 2]
    assert data.features.dtype == np.uint8
    assert data.sample_shape == (8, 8)
    assert data.divisor == 255.0
    assert data.classes == 62
    assert np.array_equal(data.features[data.train[1]], pictures(4, seed=1))
    assert data.labels[data.train[1]].tolist() == [1, 2, 3, 4]


def test_what_the_model_sees_is_what_leaf_wrote(leaf: Path) -> None:
    from fedgsp.data.batches import gather

    data = load_leaf(str(leaf))
    seen, _ = gather(data, data.train[0])
    written = np.array(pixels(6, 0)[0], dtype=np.float32)
    assert np.array_equal(seen.numpy().reshape(6, -1), written)


def test_one_directory_is_split(leaf: Path, tmp_path: Path) -> None:
    data = load_leaf(str(leaf / "train"), test=0.5, seed=3)
    assert data.train.sizes.tolist() == [3, 2, 4]
    assert data.test.sizes.tolist() == [3, 2, 5]
    (tmp_path / "femnist" / "data").mkdir(parents=True)
    (leaf / "train").rename(tmp_path / "femnist" / "data" / "all_data")
    again = load_leaf(str(tmp_path / "femnist"), test=0.5, seed=3)
    assert again.fingerprint == data.fingerprint


def test_shards_are_read_in_natural_order(tmp_path: Path) -> None:
    write_leaf(tmp_path, sizes=(2,) * 12, a_shard=1)
    assert load_leaf(str(tmp_path)).clients == tuple(f"f{k:04d}_{k:02d}" for k in range(12))


def test_it_is_converted_once_and_memory_mapped(leaf: Path) -> None:
    first, second = load_leaf(str(leaf)), load_leaf(str(leaf))
    assert first.memo == second.memo
    assert isinstance(second.features, np.memmap)


def test_any_change_of_content_is_another_entry(leaf: Path, first: Path) -> None:
    before = load_leaf(str(leaf))
    rewrite(first, lambda content: content["user_data"]["f0000_00"]["y"].__setitem__(0, 4))
    after = load_leaf(str(leaf))
    assert before.memo != after.memo
    assert before.fingerprint != after.fingerprint


def test_progress_is_told_up_to_the_end(leaf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    told: list[tuple[str, int, int]] = []
    load_leaf(str(leaf), progress=lambda *step: told.append(step))
    total = sum(file.stat().st_size for file in leaf.rglob("*.json"))
    assert told[-1] == ("converting", total, total)
    assert {what for what, _, _ in told} == {"reading", "converting"}


def test_keys_may_come_in_any_order(leaf: Path, first: Path) -> None:
    before = load_leaf(str(leaf)).fingerprint
    content = json.loads(first.read_text())
    users = {name: {"y": u["y"], "x": u["x"], "raw": ["?"]} for name, u in content["user_data"].items()}
    first.write_text(json.dumps({"hierarchies": [], "user_data": users, "num_samples": content["num_samples"],
                                 "users": content["users"]}, indent=1))  # fmt: skip
    assert load_leaf(str(leaf)).fingerprint == before


class TestNumbers:
    """Synthetic, Shakespeare and Sent140 where they are plain vectors."""

    def one(self, tmp_path: Path, x: Any, y: Any, **options: Any) -> Any:
        (tmp_path / "all.json").write_text(json.dumps(shard({"a": (x, y), "b": (x, y)})))
        return load_leaf(str(tmp_path), **options)

    def test_floats_become_float32(self, tmp_path: Path) -> None:
        data = self.one(tmp_path, [[0.25, -1.5e-3], [3.0, 4.5]], [0, 1])
        assert data.features.dtype == np.float32
        assert data.features[:2].tolist() == [[0.25, float(np.float32(-1.5e-3))], [3.0, 4.5]]
        assert data.divisor == 1.0

    def test_whole_numbers_stay_whole(self, tmp_path: Path) -> None:
        data = self.one(tmp_path, [[3, 70000], [5, 6]], [0, 1])
        assert data.features.dtype == np.int64
        assert data.features[0].tolist() == [3, 70000]

    def test_pixels_that_turn_out_to_be_numbers_are_widened(self, tmp_path: Path) -> None:
        rows = [[0.0, 1.0]] * 600 + [[0.5, 7.25]]
        data = self.one(tmp_path, rows, [0, 1] * 300 + [1])
        assert data.features.dtype == np.float32
        assert data.features[0].tolist() == [0.0, 1.0]
        assert data.features[600].tolist() == [0.5, 7.25]

    def test_whole_numbers_followed_by_real_ones(self, tmp_path: Path) -> None:
        data = self.one(tmp_path, [[1, 2]] * 600 + [[0.5, 3.0]], [0, 1] * 300 + [1])
        assert data.features.dtype == np.float32
        assert data.features[0].tolist() == [1.0, 2.0]

    def test_real_labels_make_a_regression(self, tmp_path: Path) -> None:
        data = self.one(tmp_path, [[0.5, 1.5], [2.5, 3.5]], [0.5, 2])
        assert data.classes == 0
        assert data.labels[:2].tolist() == [0.5, 2.0]

    def test_labels_that_are_texts_become_classes_in_sorted_order(self, tmp_path: Path) -> None:
        data = self.one(tmp_path, [[0.5], [1.5], [2.5]], ["w", "a", "w"])
        assert data.classes == 2
        assert data.labels[:3].tolist() == [1, 0, 1]

    def test_nested_rows_are_images(self, tmp_path: Path) -> None:
        assert self.one(tmp_path, [[[1, 2], [3, 4], [5, 6]]], [0]).sample_shape == (3, 2)

    def test_shape(self, tmp_path: Path) -> None:
        rows = [[0.5 + k] * 12 for k in range(3)]
        assert self.one(tmp_path, rows, [0, 1, 2], shape="3x4").sample_shape == (3, 4)
        assert "12 numbers cannot be arranged as 5x5" in refused(tmp_path, shape="5x5")
        assert "must look like 28x28" in refused(tmp_path, shape="big")

    def test_flat_keeps_pixels_flat(self, leaf: Path) -> None:
        assert load_leaf(str(leaf), shape="flat").sample_shape == (64,)

    def test_text_needs_an_encoder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = ["to be or", "not to be"]
        (tmp_path / "all.json").write_text(json.dumps(shard({"hamlet": (lines, ["n", "!"])})))
        assert "hamlet', x[0] is a text; turn it into numbers with encoder=" in refused(tmp_path)
        (tmp_path / "letters_encoder.py").write_text(
            "def encode(x, y):\n    rows = [[ord(c) for c in line.ljust(9)] for line in x]\n"
            "    return rows, [ord(c) % 3 for c in y]\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        data = load(f"leaf:{tmp_path}:encoder=letters_encoder:encode,test=0.5")
        assert data.features.dtype == np.int64
        assert data.features[0].tolist() == [ord(c) for c in "to be or "]
        assert "cannot import the encoder" in refused(tmp_path, encoder="letters_encoder:nothing")
        assert "package.module:function" in refused(tmp_path, encoder="letters")

    def test_an_encoder_that_fails_names_the_client(self, tmp_path: Path) -> None:
        (tmp_path / "all.json").write_text(json.dumps(shard({"hamlet": (["x"], ["n"])})))
        assert "client 'hamlet': the encoder failed: ZeroDivisionError" in refused(tmp_path, encoder=lambda x, y: 1 / 0)


class TestRefused:
    def test_nothing_there(self, tmp_path: Path) -> None:
        assert refused(tmp_path / "no") == f"there is no LEAF directory {tmp_path / 'no'}."
        assert "has no LEAF data" in refused(tmp_path)
        (tmp_path / "f").write_text("")
        assert "is a file; leaf: wants the directory" in refused(tmp_path / "f")

    def test_a_part_that_is_missing_or_empty(self, tmp_path: Path) -> None:
        (tmp_path / "train").mkdir()
        assert "has a train/ but no test/" in refused(tmp_path)
        (tmp_path / "test").mkdir()
        assert refused(tmp_path) == f"{tmp_path / 'train'} has no *.json files."

    def test_a_client_in_one_part_only(self, leaf: Path, first: Path) -> None:
        def drop(content: Any) -> None:
            content["users"].pop(0)
            content["num_samples"].pop(0)
            del content["user_data"]["f0000_00"]

        rewrite(first, drop)
        told = refused(leaf)
        assert told.startswith(f"{leaf}/test/all_data_0_test_9.json: client 'f0000_00' is in test/ only;")
        assert len(load_leaf(str(leaf), unmatched="drop")) == 2
        kept = load_leaf(str(leaf), unmatched="keep")
        assert dict(zip(kept.clients, kept.train.sizes.tolist(), strict=True))["f0000_00"] == 0
        assert "unmatched must be one of" in refused(leaf, unmatched="maybe")

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda u: u["x"][1].append(1.0), "x[1]: samples of unequal shape: (65,) here, (64,) before."),
            (lambda u: u["x"].pop(), "client 'f0000_00': 5 samples have 6 labels."),
            (lambda u: u["x"][2].__setitem__(3, float("nan")), "client 'f0000_00', x: features contain NaN or infinity"),
            (lambda u: u["x"][2].__setitem__(3, "dark"), "client 'f0000_00', x[2] holds texts"),
            (lambda u: u["x"][2].__setitem__(3, None), "client 'f0000_00', x[2] is not made of numbers"),
            (lambda u: u["x"][2].__setitem__(3, [1.0]), "client 'f0000_00', x[2]: numbers of unequal shape."),
            (lambda u: u["x"].__setitem__(2, {"a": 1}), "client 'f0000_00', x[2] is not made of numbers"),
            (lambda u: u["y"].__setitem__(0, -3), "client 'f0000_00', y: label -3 is negative"),
            (lambda u: u["y"].__setitem__(0, 10**7), "client 'f0000_00', y: label 10000000 is out of range"),
            (lambda u: u["y"].__setitem__(0, 10**30), "client 'f0000_00', y"),
            (lambda u: u["y"].__setitem__(0, None), "client 'f0000_00', y: a label is neither"),
            (lambda u: u.__setitem__("y", 3), "client 'f0000_00', y: a list of labels is expected."),
            (lambda u: u.__setitem__("x", 3), "client 'f0000_00', x: a list of samples is expected."),
            (lambda u: u.pop("y"), "client 'f0000_00' has no 'y'."),
            (lambda u: u.pop("x"), "client 'f0000_00' has no 'x'."),
        ],
    )
    def test_a_bad_client(self, leaf: Path, first: Path, change: Any, told: str) -> None:
        rewrite(first, lambda content: change(content["user_data"]["f0000_00"]))
        said = refused(leaf)
        assert said.startswith(str(first))
        assert told in said

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda c: c["users"].append("ghost"), "client 'ghost' is in 'users' but not in 'user_data'."),
            (lambda c: c["users"].pop(), "client 'f0001_01' is in 'user_data' but not in 'users'."),
            (lambda c: c["num_samples"].__setitem__(0, 7), "client 'f0000_00' has 6 samples, but num_samples says 7."),
            (lambda c: c["num_samples"].append(7), "'num_samples' does not have one number for each"),
            (lambda c: c.__setitem__("users", 4), "'users' is not a list of names."),
            (lambda c: c.pop("user_data"), "has no 'user_data': it is not a LEAF file."),
        ],
    )
    def test_a_shard_that_contradicts_itself(self, leaf: Path, first: Path, change: Any, told: str) -> None:
        rewrite(first, change)
        assert told in refused(leaf)

    def test_a_client_twice(self, leaf: Path, first: Path) -> None:
        (first.parent / "copy.json").write_text(first.read_text())
        assert "client 'f0000_00' is there also in train/" in refused(leaf)
        (first.parent / "copy.json").unlink()
        text = first.read_text()
        first.write_text(text.replace('"f0001_01": {', '"f0000_00": {'))
        assert "client 'f0000_00' is there twice" in refused(leaf)

    def test_other_bytes(self, leaf: Path, first: Path) -> None:
        first.write_bytes(first.read_bytes().replace(b"f0000_00", b"f\xff000_00"))
        assert "not UTF-8" in refused(leaf)

    def test_a_label_map_that_does_not_fit(self, leaf: Path) -> None:
        assert "label 4 is out of range for 3 classes" in refused(leaf, classes=3)

    def test_an_unreadable_file(self, leaf: Path, first: Path) -> None:
        first.unlink()
        first.symlink_to(leaf / "gone")
        assert "gone" in refused(leaf) or "No such file" in refused(leaf) or "client" in refused(leaf)

    def test_nothing_is_left_in_the_cache(
        self, leaf: Path, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
        first.write_text(first.read_text()[:-100])
        refused(leaf)
        assert [file.name for file in (tmp_path / "cache").iterdir() if file.name not in ("digests", ".locks")] == []


class TestResume:
    def test_it_goes_on_behind_the_shards_that_were_done(
        self, leaf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = load_leaf(str(leaf)).fingerprint
        monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
        from fedgsp.data.readers import leaf_convert

        seen: list[str] = []
        real = leaf_convert._Conversion.read

        def stopping(self: Any, part: Any, tick: Any) -> None:
            seen.append(part.name)
            real(self, part, tick)
            if len(seen) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(leaf_convert._Conversion, "read", stopping)
        with pytest.raises(KeyboardInterrupt):
            load_leaf(str(leaf))
        assert load_leaf(str(leaf)).fingerprint == whole
        assert seen == ["train/all_data_0_train_9.json", "train/all_data_1_train_9.json", "train/all_data_1_train_9.json",
                        "test/all_data_0_test_9.json", "test/all_data_1_test_9.json"]  # fmt: skip

    @pytest.mark.parametrize("harm", ["state", "rows"])
    def test_what_cannot_be_used_is_started_anew(
        self, leaf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
    ) -> None:
        whole = load_leaf(str(leaf)).fingerprint
        monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
        from fedgsp.data.readers import leaf_convert

        real = leaf_convert._Conversion.checkpoint

        def stopping(self: Any, part: Any) -> None:
            real(self, part)
            raise KeyboardInterrupt

        monkeypatch.setattr(leaf_convert._Conversion, "checkpoint", stopping)
        with pytest.raises(KeyboardInterrupt):
            load_leaf(str(leaf))
        monkeypatch.setattr(leaf_convert._Conversion, "checkpoint", real)
        scratch = next((tmp_path / "cache").glob(".building-*"))
        if harm == "state":
            (scratch / "state.json").write_text('{"writer": {"features": 3}}')
        else:
            next(scratch.glob("features-*.rows")).write_bytes(b"short")
        assert load_leaf(str(leaf)).fingerprint == whole


@pytest.mark.skipif(SHARED is None, reason="the real LEAF sample (../shared/femnist/leaf_json_sample) is not here")
def test_the_genuine_sample() -> None:
    data = load(f"leaf:{SHARED}/leaf_json_sample:unmatched=drop")
    assert data.clients == ("f2062_39", "f1593_46", "f1667_29")
    assert data.train.sizes.tolist() == [123, 133, 148]
    assert data.test.sizes.tolist() == [14, 15, 17]
    assert data.sample_shape == (28, 28)
    assert data.classes == 62
    known = load(f"npz:{SHARED}/femnist.npz")
    same = known.features[np.concatenate([part[known.clients.index("f2062_39")] for part in (known.train, known.test)])]
    ours = {image.tobytes() for image in data.features[data.train[0]]}
    assert ours <= {image.tobytes() for image in same}
