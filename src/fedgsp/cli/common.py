"""Options that several commands have: each means one thing, and says it in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, overload

import typer

RunDirectoryArgument = Annotated[Path, typer.Argument(help="Run directory.")]
MethodName = Annotated[
    str | None, typer.Option(help="Method, such as fedgsp or fedavg (`fedgsp methods`), or package.module:METHOD.")
]
DataSource = Annotated[str | None, typer.Option(help="Data source, such as glyphs:clients=100 or npz:FILE.")]
ModelName = Annotated[str | None, typer.Option(help="Model: a name (`fedgsp models`) or package.module:callable.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds.")]
Clients = Annotated[int | None, typer.Option(help="Use only this many clients.")]
Seed = Annotated[int | None, typer.Option(help="Seed of initial weights, plans and batches.")]
DataSeed = Annotated[int | None, typer.Option(help="Seed of generated data, splits and subsets.")]
Validation = Annotated[float | None, typer.Option(help="Share of the training samples kept for choosing settings.")]
Workers = Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")]
EngineName = Annotated[str | None, typer.Option(help="Where chains run: local, or ray (needs the extra 'ray').")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster to connect to, such as auto. Default: a new one on this machine.")
]
Resources = Annotated[str | None, typer.Option(help="What one worker takes of the Ray cluster, such as cpu=1,gpu=0.25.")]
HopSeconds = Annotated[
    float | None, typer.Option(help="Replace a worker that trains one client for longer than this. Default: never.")
]
Fleet = Annotated[
    str | None,
    typer.Option(help="Fleet that times are estimated for: paper, phone-4g, phone-wifi, hospital-fibre or FILE.toml."),
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE sets any other entry of the config.")]
OtherNumerics = Annotated[
    bool, typer.Option("--other-numerics", help="Go on although torch, kernel or device are not those of the run.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Let code that the file or the run names run, although it was not begun here.")
]
BackToRound = Annotated[int | None, typer.Option("--round", help="Go back to the checkpoint of this round, and on from there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Report = Annotated[bool, typer.Option("--report", help="Write a report page when the run ends.")]
Watch = Annotated[bool, typer.Option("--watch", help="Serve a live page of the run on this machine.")]
TensorBoardFolder = Annotated[Path | None, typer.Option(help="Also log to TensorBoard, into this folder.")]
WandBProject = Annotated[
    str | None, typer.Option("--wandb", help="Also log to this project of Weights & Biases; WANDB_MODE=offline sends nothing.")
]
MLflowAddress = Annotated[str | None, typer.Option(help="Also log to MLflow: its address, or auto.")]


@overload
def worker_count(text: str) -> int | str: ...
@overload
def worker_count(text: None) -> None: ...
def worker_count(text: str | None) -> int | str | None:
    """The value of --workers; what is no number is refused by the configuration, in its own sentence."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text
