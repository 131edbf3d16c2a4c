"""TensorBoard and MLflow get every round once, whatever happens to the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.report.loggers import MLflow, TensorBoard
from fedgsp.report.loggers.scalars import scalars
from tests.support import tiny

ENTRY = {
    "round": 3, "groups": 4, "chains": 2, "clients": 8, "left_out": 0, "samples": 70, "steps": 20, "serial_steps": 11,
    "bytes": 99, "train_loss": 1.5, "accuracy": 0.5, "loss": 1.25, "quantiles": {"accuracy": {"0.1": 0.25}}, "test_clients": 8,
    "state": "x", "holdout": {"accuracy": 0.75, "quantiles": {}, "clients": 2},
    "timings": {"at": 5.0, "plan": 0.5, "train": 2.0, "evaluate": 1.0},
}  # fmt: skip


def train(out: Path, callback: Any, rounds: int = 3) -> fedgsp.RunResult:
    return fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=rounds, workers=0, out=out, callbacks=[callback])


def resume(out: Path, callback: Any, rounds: int, **options: Any) -> fedgsp.RunResult:
    given: dict[str, Any] = {"data": tiny.federation(), "model": tiny.linear, "callbacks": [callback]}
    return fedgsp.resume(out, rounds=rounds, workers=0, **given, **options)


def test_a_journal_line_as_scalars() -> None:
    assert scalars(ENTRY) == {
        "plan/groups": 4, "plan/chains": 2, "plan/clients": 8, "plan/left_out": 0, "plan/samples": 70, "cost/steps": 20,
        "cost/serial_steps": 11, "cost/bytes": 99, "train/loss": 1.5, "test/accuracy": 0.5, "test/loss": 1.25,
        "clients/accuracy_q0.1": 0.25, "holdout/accuracy": 0.75, "seconds/plan": 0.5, "seconds/train": 2.0,
        "seconds/evaluate": 1.0,
    }  # fmt: skip


def read_board(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()


def steps(board: Any, name: str = "test/accuracy") -> list[int]:
    """Sorted, since files begun in the same second are read in the order of their names (9 after 10)."""
    return sorted(event.step for event in board.Scalars(name))


def test_tensorboard_gets_scalars_pictures_parameters_and_final_figures(tmp_path: Path) -> None:
    result = train(tmp_path / "run", TensorBoard(tmp_path / "board"))
    board = read_board(tmp_path / "board")
    assert steps(board) == [1, 2, 3]
    assert [event.value for event in board.Scalars("test/accuracy")] == pytest.approx([e["accuracy"] for e in result.history])
    assert [event.step for event in board.Images("plan/lanes")] == [1, 2, 3]
    assert board.Images("plan/lanes")[0].encoded_image_string.startswith(b"\x89PNG")
    text = board.Tensors("configuration/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "method.local.lr = 0.05" in text
    assert board.Scalars("final/accuracy")[0].value == pytest.approx(result.accuracy)


def test_tensorboard_goes_on_without_gaps_or_duplicates(tmp_path: Path) -> None:
    train(tmp_path / "run", TensorBoard(tmp_path / "board"))
    resume(tmp_path / "run", TensorBoard(tmp_path / "board"), 5)
    resume(tmp_path / "run", TensorBoard(tmp_path / "board"), 6, previous=True)  # round 5 is trained again, to the same bits
    board = read_board(tmp_path / "board")
    assert steps(board) == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in board.Images("plan/lanes")] == [1, 2, 3, 4, 5]  # round 6 has as many chains as round 5


def test_tensorboard_catches_up_with_rounds_before_it_was_asked(tmp_path: Path) -> None:
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=tmp_path / "run")
    resume(tmp_path / "run", TensorBoard(tmp_path / "board"), 4)
    assert steps(read_board(tmp_path / "board")) == [1, 2, 3, 4]


def test_a_new_run_hides_what_an_old_one_left_in_the_folder(tmp_path: Path) -> None:
    train(tmp_path / "old", TensorBoard(tmp_path / "board"), rounds=5)
    train(tmp_path / "new", TensorBoard(tmp_path / "board"), rounds=2)
    assert steps(read_board(tmp_path / "board")) == [1, 2]


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # artifacts go beside where one stands
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def logged(uri: str) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment: Any = client.get_experiment_by_name("fedgsp")
    return client, client.search_runs([experiment.experiment_id])


@pytest.mark.slow  # making its database takes MLflow some seconds
def test_mlflow_goes_on_without_gaps_or_duplicates(tmp_path: Path, tracking: str) -> None:
    train(tmp_path / "run", MLflow(tmp_path / "run", tracking))
    resume(tmp_path / "run", MLflow(tmp_path / "run", tracking), 5)
    result = resume(tmp_path / "run", MLflow(tmp_path / "run", tracking), 6, previous=True)
    client, (run,) = logged(tracking)
    history = client.get_metric_history(run.info.run_id, "test.accuracy")
    assert [point.step for point in history] == [1, 2, 3, 4, 5, 6]
    assert [point.value for point in history] == pytest.approx([entry["accuracy"] for entry in result.history])
    assert run.data.params["method.local.lr"] == "0.05"
    assert run.data.metrics["final.accuracy"] == pytest.approx(result.accuracy)
    assert run.info.status == "FINISHED"
    names = [artifact.path for artifact in client.list_artifacts(run.info.run_id, "plans")]
    assert names == [f"plans/plan-round-{r:06d}.png" for r in range(1, 6)]  # round 6 has as many chains as round 5
    train(tmp_path / "other", MLflow(tmp_path / "other", tracking), rounds=1)
    assert len(logged(tracking)[1]) == 2


@pytest.mark.slow
def test_a_server_that_goes_away_does_not_stop_the_run(
    tmp_path: Path, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = MLflow(tmp_path / "run", tracking)
    log, calls = callback._client.log_batch, []

    def flaky(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("gone")
        return log(*arguments, **options)

    monkeypatch.setattr(callback._client, "log_batch", flaky)
    assert train(tmp_path / "run", callback, rounds=5).status == "finished"
    client, (run,) = logged(tracking)
    assert [point.step for point in client.get_metric_history(run.info.run_id, "test.accuracy")] == [1, 2, 3, 4, 5]
    assert capsys.readouterr().err.count("MLflow cannot be reached (gone)") == 1


@pytest.mark.parametrize(("module", "make"), [("tensorboard", TensorBoard), ("mlflow", MLflow)])
def test_a_missing_package_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, make: Any
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install 'fedgsp\[{module}\]'"):
        make(tmp_path)
