"""Damaged and hostile files of every format: a federation or one sentence, never a traceback, a hang or a memory explosion.

Quick: 60 inputs a format, 360 in all. Slow: 2,000 a format, 12,000 in all, in child processes that may use 3 GiB of address
space and two minutes, so that a crash of a C library or an explosion shows.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from tests.support.data_files import write_csv, write_hdf5, write_images, write_leaf, write_parquet

QUICK, THOROUGH = 60, 2000
TOKENS = [
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"-1", b"1e999", b"NaN", b"null", b"true", b"9" * 400, b"0.5", b"\xff", b"\0",
    b"\n", b'"x"', b'"y"', b"[" * 90, b'"users"', b"4294967295", b"\x7f\xff\xff\xff",
]  # fmt: skip


def make_npz(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez_compressed(
        folder / "f.npz", features=rng.normal(size=(20, 3)), labels=np.arange(20) % 3, client_index=np.arange(20) % 4,
        clients=np.array(["a", "b", "c", "d"]),
    )  # fmt: skip
    return folder / "f.npz"


def make_leaf(folder: Path) -> Path:
    write_leaf(folder, sizes=(3, 2))
    return folder / "train" / "all_data_0_train_9.json"


FORMATS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "npz": (make_npz, "npz:{folder}/f.npz"),
    "leaf": (make_leaf, "leaf:{folder}"),
    "parquet": (lambda folder: write_parquet(folder / "f.parquet", 12), "parquet:{folder}/f.parquet"),
    "hdf5": (lambda folder: write_hdf5(folder / "f.h5"), "hdf5:{folder}/f.h5"),
    "csv": (lambda folder: write_csv(folder / "f.csv", 12), "csv:{folder}/f.csv:label=outcome,client=site"),
    "images": (lambda folder: write_images(folder, 1, 1) / "client0" / "cat" / "1.png", "images:{folder}"),
}


def harm(raw: bytes, steps: list[tuple[str, float, float, int]]) -> bytes:
    """Damage a file: cut it, flip bits, repeat, move or drop stretches, put tokens in."""
    for kind, at, length, what in steps:
        begin = int(at * len(raw))
        end = min(len(raw), begin + 1 + int(length * 60))
        if kind == "cut":
            raw = raw[:begin]
        elif kind == "flip" and raw:
            begin = min(begin, len(raw) - 1)
            raw = raw[:begin] + bytes([raw[begin] ^ (1 << what % 8)]) + raw[begin + 1 :]
        elif kind == "drop":
            raw = raw[:begin] + raw[end:]
        elif kind == "repeat":
            raw = raw[:end] + raw[begin:end] * (1 + what % 5) + raw[end:]
        elif kind == "move":
            raw = raw[begin:end] + raw[:begin] + raw[end:]
        elif kind == "token":
            raw = raw[:begin] + TOKENS[what % len(TOKENS)] + raw[begin:]
        elif kind == "replace":
            token = TOKENS[what % len(TOKENS)]
            raw = raw[:begin] + token + raw[begin + len(token) :]
    return raw


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "flip", "drop", "repeat", "move", "token", "replace"]),
        st.floats(0, 1), st.floats(0, 1), st.integers(0, 255),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


def try_one(source: str, file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told, data = "", None
        try:
            data = load(source)
        except InputError as error:
            told = str(error)
    if data is None:
        assert told.strip()
        assert "\n" not in told
        assert told.endswith((".", "?"))
    else:
        assert isinstance(data, FederatedData)
        assert len(data.fingerprint) == 64
        assert data.profiles().counts.sum() == len(data.train.rows)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    make, source = FORMATS[name]
    file = make(tmp_path / "data")
    original = file.read_bytes()
    tried = 0

    @settings(max_examples=QUICK, deadline=600_000, database=None, derandomize=True,
              suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    @given(STEPS)
    def attempt(steps: Any) -> None:
        nonlocal tried
        tried += 1
        try_one(source.format(folder=tmp_path / "data"), file, harm(original, steps))

    attempt()
    assert tried >= QUICK


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_thoroughly(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    make, source = FORMATS[name]
    file = make(tmp_path / "data")
    original, text = file.read_bytes(), source.format(folder=tmp_path / "data")
    log = tmp_path / "log"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30),) * 2)
            signal.alarm(600)
            rng = np.random.default_rng(list(name.encode()))
            kinds = ["cut", "flip", "drop", "repeat", "move", "token", "replace"]
            for number in range(THOROUGH):
                steps = [
                    (str(rng.choice(kinds)), float(rng.random()), float(rng.random()), int(rng.integers(256)))
                    for _ in range(rng.integers(1, 5))
                ]
                log.write_text(json.dumps([number, steps]))
                try_one(text, file, harm(original, steps))
            code = 0
        except BaseException as error:
            log.write_text(log.read_text() + f"\n{type(error).__name__}: {error}"[:2000])
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert status == 0, log.read_text()
