"""Runs of a deployment: submitted to its SuperLink, followed to their end, and gone on with after whatever stopped them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedgsp.core.errors import InputError, RunFailed
from fedgsp.core.files import write_whole
from fedgsp.deploy.local import START_SECONDS, LocalDeployment, Say, control, ended_run, environment, started_run, submission
from fedgsp.deploy.status import RunStatus, run_status
from fedgsp.deploy.superlink import FlowerRun, SuperLink, Unreachable
from fedgsp.run.going_back import kept_rounds
from fedgsp.run.reader import is_held

if TYPE_CHECKING:
    from fedgsp.deploy.layout import Deployment

LOOK_SECONDS, ASK_SECONDS = 0.3, 2.0
STOP_SECONDS = 120.0
LET_GO_SECONDS = 60.0
"""How long the app of a run whose SuperLink was restarted may take until it has found out."""
GONE_SECONDS = 3.0
"""A run directory that nobody has held for so long is nobody's any more; Flower notices only after most of a minute."""


class Shown(Protocol):
    """Whoever shows a run that goes on in another process."""

    def look(self) -> None:
        """Take in what is new."""
        ...

    def tell(self, text: str) -> None:
        """Say something that the run directory does not."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


Follow = Callable[[Path], Shown]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: what its directory says, and what Flower says of its own run."""

    run: RunStatus | None
    flower: FlowerRun | None
    path: Path

    def explained(self, root: Path) -> None:
        """Raise with a sentence where the run did not come to its end."""
        go_on = f"go on with: fedgsp deploy resume {root}"
        if self.run is None:
            said = self.flower.details if self.flower is not None and self.flower.details else "it left no run directory"
            raise RunFailed(f"the run did not begin: {said}; see the logs in {root / 'logs'}.")
        if self.run.status in ("finished", "target"):
            return
        cause = self.run.cause
        done = f"after {self.run.round} of {self.run.rounds} rounds"
        if self.run.status == "paused":
            raise RunFailed(f"the run paused {done}: {cause or 'too few clients answered'}; {go_on}")
        why = cause or (self.flower.details if self.flower is not None else "") or "the server's app was stopped"
        raise RunFailed(f"the run ended {done}: {why}; {go_on}")


def run_locally(place: Deployment, run: Path, *, resume: bool, follow: Follow, say: Say, back: int | None = None) -> Outcome:
    """Start all processes of a deployment on this machine, run, and stop them, however it ends."""
    with LocalDeployment(place, say) as processes:
        processes.start_server()
        processes.start_nodes(place.sites())
        number = processes.submit(run, resume, back)
        try:
            return _followed(place, run, number, follow, processes.trouble)
        except RunFailed as error:
            if not (run / "config.toml").exists():
                raise
            raise RunFailed(f"{error} Nothing finished is lost; go on with: fedgsp deploy resume {place.root}") from error


def run_remotely(place: Deployment, run: Path, *, resume: bool, follow: Follow, back: int | None = None) -> Outcome:
    """Submit a run to a SuperLink that is there already, and follow it; Ctrl-C only ends the following."""
    link = control(place)
    if not link.answers():
        raise RunFailed(f"nobody answers at {place.listen}; start the server first: {place.server / 'start.sh'}")
    asked = subprocess.run(
        submission(place, run, resume, back), env=environment(place), capture_output=True, text=True, timeout=START_SECONDS
    )  # fmt: skip
    return _followed(place, run, started_run(asked.stdout + asked.stderr), follow, list)


def _followed(place: Deployment, run: Path, number: int, follow: Follow, trouble: Callable[[], list[str]]) -> Outcome:
    facts = {"schema": 1, "run": str(run), "number": number}
    write_whole(place.root / "submitted.json", json.dumps(facts).encode() + b"\n", sync=False)
    link, shown = control(place), follow(run)
    asked, ended = 0.0, None
    last_held: float | None = None
    try:
        while ended is None:
            for text in trouble():
                shown.tell(text)
            shown.look()
            now = time.monotonic()
            if now - asked >= ASK_SECONDS:
                asked, ended = now, ended_run(link, number)
            if is_held(run):
                last_held = now
            elif last_held is not None and now - last_held > GONE_SECONDS:
                break
            time.sleep(LOOK_SECONDS)
        shown.look()
    finally:
        shown.close()
    return Outcome(run_status(run) if (run / "config.toml").exists() else None, ended, run)


def new_run(place: Deployment, method: str) -> Path:
    """A name for a run directory that is not there yet."""
    stem = f"{method.replace('/', '-').replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = place.runs / stem, 1
    while path.exists():
        count += 1
        path = place.runs / f"{stem}-{count}"
    return path


def run_to_resume(place: Deployment, back: int | None = None) -> Path:
    """The newest run, if it is one that can go on: also one that has come to its end can go back to a round."""
    run = place.newest_run()
    if run is None:
        raise InputError(f"{place.root} has no run to go on with; begin one.")
    if is_held(run) and _forgotten(place, run):  # its app is about to find out that its SuperLink is another one
        deadline = time.monotonic() + LET_GO_SECONDS
        while is_held(run) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
    status = run_status(run)
    if status.status == "running":
        raise InputError(f"{run} is running; see: fedgsp deploy status {place.root}")
    if back is not None and back not in kept_rounds(run):
        kept = ", ".join(map(str, kept_rounds(run))) or "none"
        raise InputError(f"{run} has no checkpoint of round {back}; there are those of the rounds: {kept}.")
    if not status.resumable and back is None:
        raise InputError(f"{run} has come to its end ({status.status}) after {status.round} rounds.")
    return run


def _forgotten(place: Deployment, run: Path) -> bool:
    """Whether a run was submitted to a SuperLink that has been restarted since, and knows no such run."""
    try:
        number, submitted = _submitted(place)
        found = control(place).run(number)
    except (InputError, Unreachable):
        return False
    return submitted == run and (found is None or found.over)


def _submitted(place: Deployment) -> tuple[int, Path]:
    """Flower's number of the run that was submitted last, and its directory."""
    try:
        facts = json.loads((place.root / "submitted.json").read_text())
        return int(facts["number"]), Path(facts["run"])
    except (OSError, ValueError, KeyError):
        raise InputError(f"no run was submitted from {place.root}.") from None


def stop_run(place: Deployment) -> int:
    """Stop the run that was submitted last, and wait until its app has let go of the run directory; its number."""
    number, run = _submitted(place)
    link: SuperLink = control(place)
    found = link.run(number)
    if found is None or found.over:
        raise InputError(f"run {number} is not going on.")
    link.stop(number)
    deadline = time.monotonic() + STOP_SECONDS
    while is_held(run):
        if time.monotonic() > deadline:
            raise RunFailed(f"run {number} was told to stop, but its app still holds {run} after {STOP_SECONDS:g} seconds.")
        time.sleep(LOOK_SECONDS)
    return number
