"""Weights & Biases gets every round and the final figures, without a network."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

import fedgsp
from fedgsp.report.loggers import WandB
from tests.support import tiny


@pytest.mark.slow
def test_an_offline_run_has_every_round_and_the_final_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandB("tests", directory=tmp_path / "run", mode="offline", folder=tmp_path)
    result = fedgsp.train(
        tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=tmp_path / "run", callbacks=[logger]
    )  # fmt: skip
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert (tmp_path / "run" / "wandb-run-id.txt").read_text().strip() in file.name
    wandb.teardown()  # its service ends; once, on a busy machine, nothing was in the file right after it
    steps, summary = _whole(file)
    assert steps == {entry["round"]: pytest.approx(entry["accuracy"]) for entry in result.history}
    assert summary["status"] == '"finished"'
    assert float(summary["final/accuracy"]) == pytest.approx(result.score)


def _whole(file: Path) -> tuple[dict[int, float], dict[str, str]]:
    """What was written, as soon as the last of it is there; after some minutes whatever there is."""
    end = time.monotonic() + 300
    while True:
        try:
            found = _written(file)
        except (AssertionError, struct.error):  # a record of which a part is missing
            found = {}, {}
        if "final/accuracy" in found[1] or time.monotonic() > end:
            return found
        time.sleep(0.1)


def _written(file: Path) -> tuple[dict[int, float], dict[str, str]]:
    """The accuracy by step, and the summary, of W&B's own file."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))  # type: ignore[no-untyped-call]
    steps, summary = {}, {}
    while (data := store.scan_data()) is not None:  # type: ignore[no-untyped-call]
        record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
        record.ParseFromString(data)
        items = {(item.key or "/".join(item.nested_key)): item.value_json for item in record.history.item}
        if record.history.item:
            steps[int(items["_step"])] = float(items["test/accuracy"])
        summary.update({(i.key or "/".join(i.nested_key)): i.value_json for i in record.summary.update})
    return steps, summary
