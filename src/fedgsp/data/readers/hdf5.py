"""TensorFlow Federated's HDF5 files (`fed_emnist_train.h5`, `fed_emnist_test.h5`): `hdf5:FILE` or `hdf5:DIR`.

A file is `examples/<client>/{pixels,label}`. Pixels are floats with a white background, as LEAF's, and are stored as bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError, brief
from fedgsp.core.imports import need
from fedgsp.data.assemble import ReaderOptions, federate
from fedgsp.data.cache import Progress, get_or_convert, silent
from fedgsp.data.digests import digest_of_files
from fedgsp.data.readers.encoding import Encoding
from fedgsp.data.readers.entry_writer import TEST, TRAIN, UNSPLIT, EntryWriter

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

VERSION = 1
FEATURES = ("pixels", "image", "features", "x")
LABELS = ("label", "labels", "y")
BLOCK_BYTES = 1 << 24
LARGEST_SAMPLE = 1 << 26
SUSPICIOUS_SIZE = 1 << 28
SUSPICIOUS_RATIO = 200
ENDINGS = (".h5", ".hdf5")


def load_hdf5(path: str, *, features: str = "", label: str = "", progress: Progress = silent, **common: Any) -> FederatedData:
    """Read a TFF file, or a directory with a ..train.h5 and a ..test.h5, whose split is kept.

    `features` and `label` name a client's two data sets where they are not called pixels and label.
    """
    need("h5py", "hdf5", "reading HDF5 files")
    options = ReaderOptions(**common)
    files = _files(Path(path))
    content = digest_of_files([(file.name, file) for file, _ in files], progress)
    entry = get_or_convert(
        "hdf5", VERSION, content, [features, label], Path(path).name,
        lambda folder: _convert(files, folder, features, label, progress),
    )  # fmt: skip
    return federate(entry, options, path)


def _files(path: Path) -> list[tuple[Path, int]]:
    if not path.exists():
        raise InputError(f"there is no HDF5 file or directory {path}.")
    if path.is_file():
        return [(path, UNSPLIT)]
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in ENDINGS)
    train = [file for file in found if "train" in file.stem.lower()]
    test = [file for file in found if "test" in file.stem.lower()]
    if not train or not test:
        raise InputError(f"{path} has no pair of files ..train.h5 and ..test.h5; name a single file to have it split.")
    return [(file, TRAIN) for file in train] + [(file, TEST) for file in test]


def _convert(files: list[tuple[Path, int]], folder: Path, features: str, label: str, progress: Progress) -> dict[str, Any]:
    h5py = need("h5py", "hdf5", "reading HDF5 files")
    writer = EntryWriter(folder, Encoding("text"))
    for number, (path, part) in enumerate(files):
        try:
            with h5py.File(path, "r") as file:
                examples = _inside(file, "examples", h5py.Group, path, "it is not a TFF file")
                names = sorted(examples.keys())
                for done, name in enumerate(names):
                    _read_client(h5py, examples, name, path, part, (features, label), writer)
                    share = number + (done + 1) / len(names)
                    progress("converting", int(1000 * share), 1000 * len(files))
        except InputError:
            raise
        except Exception as error:  # h5py turns the C library's complaints into half a dozen types
            raise InputError(f"{path} cannot be read as HDF5: {brief(error)}.") from error
    return writer.finish(str(files[0][0]))


def _read_client(
    h5py: Any, examples: Any, name: str, path: Path, part: int, columns: tuple[str, str], writer: EntryWriter
) -> None:
    where = f"{path}: client '{name}'"
    group = _inside(examples, name, h5py.Group, path, f"client '{name}' is not a group")
    inside = list(group.keys())
    chosen = []
    for wanted, usual in zip(columns, (FEATURES, LABELS), strict=True):
        field = wanted or next((field for field in usual if field in inside), "")
        if field not in inside:
            raise InputError(f"{where} has no '{wanted or usual[0]}'; it has: {', '.join(inside)}.")
        chosen.append(_inside(group, field, h5py.Dataset, path, f"client '{name}', '{field}' is not a data set"))
    x, y = chosen
    for field, data in (("features", x), ("labels", y)):
        _check(data, path, f"{where}, {field}")
    if x.ndim < 1 or y.ndim != 1 or len(x) != len(y):
        raise InputError(f"{where}: {x.shape} features and {y.shape} labels are not one for each sample.")
    row_bytes = int(np.prod(x.shape[1:], dtype=object)) * x.dtype.itemsize
    if row_bytes > LARGEST_SAMPLE:
        raise InputError(f"{where}: a sample of {row_bytes / 1e6:.0f} MB is too large.")
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    for begin in range(0, len(x), step):
        block = x[begin : begin + step]
        writer.add_features(block.reshape(-1, 1) if block.ndim == 1 else block, f"{where}, features")
        writer.add_labels(y[begin : begin + step], f"{where}, labels")
    writer.assign_client(name, part, where)


def _inside(group: Any, name: str, kind: Any, path: Path, otherwise: str) -> Any:
    """A member that is really in this file: links to other files are not followed."""
    h5py = need("h5py", "hdf5", "reading HDF5 files")
    link = group.get(name, getlink=True)
    if link is None:
        raise InputError(f"{path} has no '{name}': {otherwise}.")
    if not isinstance(link, h5py.HardLink):
        raise InputError(f"{path}: '{name}' is a link, which is not followed.")
    member = group[name]
    if not isinstance(member, kind):
        raise InputError(f"{path}: {otherwise}.")
    return member


def _check(data: Any, path: Path, where: str) -> None:
    if data.dtype.kind not in "buif":
        raise InputError(f"{where} are {data.dtype}, not numbers.")
    if data.is_virtual or data.external:
        raise InputError(f"{where} lie in another file, which is not followed.")
    claimed = int(np.prod(data.shape, dtype=object)) * data.dtype.itemsize
    if claimed > SUSPICIOUS_SIZE and claimed > SUSPICIOUS_RATIO * path.stat().st_size:
        raise InputError(f"{where} claim {claimed / 1e9:.1f} GB in a much smaller file; it is damaged or hostile.")
