"""`fedgsp.cost`: how long would these runs have taken on a fleet of devices?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.core.tables import frame, html_table, text_table
from fedgsp.cost import Fleet, fleet_named, paper_costs, run_cost
from fedgsp.parts import decode
from fedgsp.plan import Grouped
from fedgsp.run.build import RunBuilder
from fedgsp.run.clients import ClientFacts, read_client_facts
from fedgsp.run.reader import RunReader, latest_checkpoint, need_run, read_log
from fedgsp.run.result import RunResult
from fedgsp.run.trust import code_named

HEADS = ("run", "method", "rounds", "visits", "seconds", "computing", "MB through the server")


@dataclass(frozen=True, repr=False)
class Costs:
    """What `fedgsp.cost` returns.

    Attributes:
        fleet: The devices and the network.
        runs: A dict for every run: rounds, visits, seconds, the longest chains, computing, traffic; and the paper's formulas.
    """

    fleet: Fleet
    runs: list[dict[str, Any]]

    def to_pandas(self) -> Any:
        """A row for each run, as a pandas DataFrame."""
        return frame("pandas", self.runs)

    def to_polars(self) -> Any:
        """A row for each run, as a polars DataFrame."""
        return frame("polars", self.runs)

    def _rows(self) -> list[tuple[Any, ...]]:
        return [
            (c["run"], c["method"], c["rounds"], c["visits"], f"{c['seconds']:.1f}", f"{c['computing']:.1f}",
             f"{c['traffic'] / 1e6:.1f}") for c in self.runs
        ]  # fmt: skip

    def __repr__(self) -> str:
        return "\n".join([f"Costs of {len(self.runs)} run(s)", *text_table(HEADS, self._rows(), most=7)])

    def _repr_html_(self) -> str:
        return html_table("Costs", HEADS, self._rows())


def cost(*runs: str | Path | RunResult, fleet: str | Fleet = "paper", rounds: int | None = None, trust: bool = False) -> Costs:
    """Work out what runs would take on a fleet: by what really happened, and by the paper's formulas.

    Args:
        runs: Run directories, or what `fedgsp.train(..., out=...)` returned.
        fleet: A name (paper, phone-4g, phone-wifi, hospital-fibre), a .toml file, or a `fedgsp.cost.Fleet`.
        rounds: Only the first so many rounds; None: all.
        trust: Let code that a directory names run where it must, although the run was not begun on this machine.

    Returns:
        The cost of each run.

    Raises:
        InputError: There is no such run or fleet, or a run wrote no event log.
    """
    chosen = fleet_named(fleet) if isinstance(fleet, str) else fleet
    return Costs(chosen, [cost_of_run(_place(run), chosen, rounds, trust) for run in runs])


def _place(run: str | Path | RunResult) -> Path:
    if not isinstance(run, RunResult):
        return Path(run)
    if run.directory is None:
        raise InputError("this run wrote nothing down, so nobody knows who trained when; train it with `out=...`.")
    return run.directory


def cost_of_run(directory: Path, fleet: Fleet, rounds: int | None, trust: bool = False) -> dict[str, Any]:
    """The cost of one run as plain data; neither its code nor its data are needed, unless it was recorded long ago."""
    reader = RunReader(need_run(directory))
    if not isinstance(reader.config.get("method"), dict):
        raise InputError(f"{directory} has no [method] that can be read in its config.toml.")
    found = latest_checkpoint(directory)
    if found is None or found[0].round == 0:
        raise InputError(f"{directory} has not finished a round, so it has no cost yet.")
    count = min(found[0].round, rounds or found[0].round)
    facts = read_client_facts(directory)
    if facts is None:  # recorded before runs wrote it down
        builder = RunBuilder(trust=trust)
        facts = ClientFacts.of(builder.build(builder.read(directory / "config.toml")))
    if facts.flops_per_sample is None:
        raise InputError(f"the FLOPs of {directory} could not be counted, so its cost cannot be worked out.")
    real = run_cost(read_log(directory, "events"), fleet, facts.flops_per_sample, reader.epochs_in, count)
    told: dict[str, Any] = {
        "run": str(directory), "method": reader.method, "flops_per_sample": facts.flops_per_sample, **asdict(real)
    }  # fmt: skip
    planner, table = None, reader.config["method"].get("planner")
    if not code_named(
        {"method": table}
    ):  # the paper's formulas say nothing of a planner of the user's own, whose code may not run
        with suppress(InputError):
            planner = decode("planner", table, "method.planner")
    if isinstance(planner, Grouped) and not planner.chains and len({reader.epochs_in(r) for r in range(1, count + 1)}) == 1:
        paper = paper_costs(planner.growth, int(facts.trains.sum()), count, planner.kappa, reader.epochs_in(1))
        told["paper"] = {**asdict(paper), "computing": paper.computing}
    return told
