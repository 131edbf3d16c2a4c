"""Small files of every format that `fedgsp` reads, in their genuine schemas."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARED = next(
    (p / "shared" / "femnist" for p in Path(__file__).resolve().parents if (p / "shared" / "femnist" / "femnist.npz").exists()),
    None,
)
"""Real FEMNIST, where it is beside the project."""


def pictures(count: int, seed: int = 0, side: int = 8) -> NDArray[np.uint8]:
    """Grey images with a white background."""
    made = np.random.default_rng(seed).integers(0, 256, (count, side, side), dtype=np.uint8)
    made[:, 0] = 255
    return made


def shard(users: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """A LEAF shard of {user: (x, y)}."""
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def pixels(count: int, seed: int) -> tuple[list[list[float]], list[int]]:
    """(x, y) of one user, pixels as LEAF writes them."""
    x = (pictures(count, seed).reshape(count, -1) / 255).tolist()
    return x, [(seed + k) % 5 for k in range(count)]


def write_leaf(folder: Path, sizes: tuple[int, ...] = (6, 4, 9), a_shard: int = 2) -> Path:
    """A LEAF directory with train/ and test/: users f0000_00, f0001_01, .. with these training sizes, two test samples each."""
    names = [f"f{k:04d}_{k:02d}" for k in range(len(sizes))]
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for begin in range(0, len(sizes), a_shard):
            users = {
                names[k]: pixels(sizes[k] if part == "train" else 2, k + (100 if part == "test" else 0))
                for k in range(begin, min(begin + a_shard, len(sizes)))
            }
            (folder / part / f"all_data_{begin // a_shard}_{part}_9.json").write_text(json.dumps(shard(users)))
    return folder


def png(image: NDArray[np.uint8]) -> bytes:
    """An image as PNG bytes; (H, W) grey or (H, W, 3) coloured."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image).save(out, "png")
    return out.getvalue()


def write_parquet(file: Path, count: int = 30, writers: int = 3, seed: int = 0, names: bool = True) -> Path:
    """A file in the schema of flwrlabs/femnist: image, writer_id, hsf_id, character, with the hub's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = [{"bytes": png(image), "path": None} for image in pictures(count, seed)]
    table = pa.table(
        {
            "image": pa.array(images, type=pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "writer_id": [f"f{k % writers:04d}_{k % writers:02d}" for k in range(count)],
            "hsf_id": pa.array([k % 8 for k in range(count)], type=pa.int64()),
            "character": pa.array([k % 62 for k in range(count)], type=pa.int64()),
        }
    )
    label = {"_type": "ClassLabel", "names": [str(k) for k in range(62)]}
    hub = {"info": {"features": {"image": {"_type": "Image"}, "character": label}}}
    if names:
        table = table.replace_schema_metadata({"huggingface": json.dumps(hub)})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, row_group_size=16)
    return file


def write_hdf5(file: Path, sizes: tuple[int, ...] = (5, 7), seed: int = 0) -> Path:
    """A file as TFF's fed_emnist: examples/<client>/{pixels,label}."""
    import h5py

    with h5py.File(file, "w") as out:
        for k, count in enumerate(sizes):
            group = out.create_group(f"examples/f{k:04d}_{k:02d}")
            group.create_dataset("pixels", data=(pictures(count, seed + k) / np.float32(255)).astype(np.float32))
            group.create_dataset("label", data=np.arange(count, dtype=np.int32))
    return file


def write_csv(file: Path, rows: int = 40, sites: int = 4) -> Path:
    """A table of three features, a label and a site."""
    rng = np.random.default_rng(0)
    with file.open("w", newline="") as out:
        lines = csv.writer(out)
        lines.writerow(["age", "dose", "height", "outcome", "site"])
        for k in range(rows):
            lines.writerow([*rng.normal(size=3).round(4).tolist(), ["ill", "well"][k * 7 % 5 % 2], f"site-{k % sites}"])
    return file


def write_images(root: Path, clients: int = 3, each: int = 4) -> Path:
    """root/<client>/<class>/<picture>.png."""
    for c in range(clients):
        for k, image in enumerate(pictures(each * 2, seed=c)):
            place = root / f"client{c}" / ("cat" if k % 2 else "dog")
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{k}.png").write_bytes(png(image))
    return root
