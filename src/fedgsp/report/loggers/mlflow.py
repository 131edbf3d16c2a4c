"""Metrics, plans, parameters and final figures for MLflow (extra `mlflow`)."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.report.loggers.scalars import Pictures, final_metrics, hyper_parameters, scalars
from fedgsp.run.callbacks import Callback

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

TAG = "fedgsp.directory"
MARK = "train.loss"
LONGEST_VALUE = 500
"""What MLflow takes as a parameter's value."""

STATUSES = {"finished": "FINISHED", "target": "FINISHED"}


class MLflow(Callback):
    """Logs a run to an MLflow server or folder.

    A server that goes away does not stop the run: what it missed is sent when the run ends or is resumed.

    Args:
        directory: The run's directory, by which a resumed run is found again.
        uri: MLflow's tracking URI. None: MLflow's own default.
        experiment: The experiment to log under.

    Raises:
        InputError: MLflow is not installed, or cannot be used.
    """

    def __init__(self, directory: str | Path, uri: str | None = None, experiment: str = "fedgsp") -> None:
        package = need("mlflow", "mlflow", "logging to MLflow")
        need("matplotlib", "mlflow", "logging plans to MLflow")
        self._problem: type[Exception] = package.exceptions.MlflowException
        try:
            self._client = package.MlflowClient(tracking_uri=uri)
        except self._problem as error:
            raise InputError(f"MLflow cannot be used: {_first_line(error)}.") from error
        self._directory, self._experiment = str(Path(directory).resolve()), experiment
        self._run = ""
        self._pictures: Pictures | None = None
        self._logged: set[int] = set()
        self._waiting: list[dict[str, Any]] = []
        self._away = False
        self._status = "KILLED"

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Find the MLflow run of a resumed run, or begin one; catch up with rounds that it lacks."""
        self._pictures = Pictures(run)
        try:
            self._begin(run, history)
        except self._problem as error:
            raise InputError(f"MLflow cannot be used: {_first_line(error)}.") from error
        self._waiting = list(history)
        self._send()

    def _begin(self, run: Run, history: list[dict[str, Any]]) -> None:
        known = self._client.get_experiment_by_name(self._experiment)
        place = known.experiment_id if known else self._client.create_experiment(self._experiment)
        if history:
            wanted = f"tags.`{TAG}` = {_quoted(self._directory)}"
            found = self._client.search_runs([place], wanted, order_by=["attributes.start_time DESC"], max_results=1)
            if found:
                self._run = found[0].info.run_id
                self._client.update_run(self._run, status="RUNNING")
                with suppress(self._problem):  # a run that had no metrics yet
                    self._logged = {point.step for point in self._client.get_metric_history(self._run, MARK)}
                return
        name = f"{run.config.method.name}, seed {run.config.run.seed}"
        self._run = self._client.create_run(place, tags={TAG: self._directory, "mlflow.runName": name}).info.run_id
        for key, value in hyper_parameters(run).items():
            self._client.log_param(self._run, _allowed(key), str(value)[:LONGEST_VALUE])

    def on_round_start(self, plan: Plan) -> None:
        """A picture of the plan, where lanes change."""
        assert self._pictures is not None
        picture = self._pictures.of(plan)
        if picture is None or plan.round in self._logged or self._away:
            return
        self._guarded(self._upload, f"plan-round-{plan.round:06d}.png", picture)

    def _upload(self, name: str, content: bytes) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            self._client.log_artifact(self._run, str(path), "plans")

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """The round's metrics."""
        self._waiting.append(entry)
        if not self._away:
            self._send()

    def on_run_end(self, result: RunResult) -> None:
        """What was missed, and the final figures."""
        self._away = False
        self._send()
        self._status = STATUSES.get(result.status, "FAILED")
        for name, value in final_metrics(result).items():
            self._guarded(self._client.log_metric, self._run, _allowed(name), value, None, result.rounds)

    def close(self) -> None:
        """Close the MLflow run with the status that the run has come to."""
        if self._run and not self._away:
            self._guarded(self._client.set_terminated, self._run, self._status)

    def _send(self) -> None:
        while self._waiting and not self._away:
            entry = self._waiting[0]
            if entry["round"] not in self._logged:
                self._guarded(self._log, entry)
            if not self._away:
                self._logged.add(entry["round"])
                self._waiting.pop(0)

    def _log(self, entry: dict[str, Any]) -> None:
        metric = need("mlflow.entities", "mlflow", "logging to MLflow").Metric
        at = int(1000 * entry.get("timings", {}).get("at", 0))
        rows = [metric(_allowed(name), value, at, entry["round"]) for name, value in scalars(entry).items()]
        self._client.log_batch(self._run, metrics=rows)

    def _guarded(self, call: Any, *arguments: Any) -> None:
        """A tool that only looks on must not stop a run: say it once and go on without it."""
        try:
            call(*arguments)
        except (self._problem, OSError) as error:
            if not self._away:
                print(f"note: MLflow cannot be reached ({_first_line(error)}); the run goes on.", file=sys.stderr)
            self._away = True


def _allowed(name: str) -> str:
    """Slashes would make folders of metrics that share a beginning."""
    return name.replace("/", ".")


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "") + '"' if "'" in text else f"'{text}'"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
