"""The measured table of docs/methods.md: every method at equal rounds, at equal serial steps and at equal traffic.

    python benchmarks/rivals.py --data npz:femnist.npz:federation=femnist-368 --out runs/rivals

Every method is run with the paper's learning rate (0.01) and with the best of its own grid, which is chosen on validation
samples (`fedgsp tune`); then all are judged on test samples, the mean over the seeds. Every unit is a run directory below
--out: stop the script whenever you like and give the same command to go on. It ends with a table in Markdown, OUT/rivals.md.

    equal rounds         after --rounds rounds
    equal serial steps   after as many SGD steps one after the other as fedgsp makes in those rounds; methods whose rounds are
                         short go on for up to --most-rounds rounds (marked * where even that is not enough)
    equal traffic        after as many bytes as the thriftiest method moves in those rounds

Methods that yield several models or none are about something else: they stand in a table of their own.

`--estimate` says what it will take, from a few timed steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from fedgsp.core.errors import FedgspError
from fedgsp.core.version import __version__
from fedgsp.data.sources import absolute
from fedgsp.methods import JUDGED, METHODS, Method, named
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.files import write_whole
from fedgsp.run.forecast import forecast
from fedgsp.run.setup import prepare
from fedgsp.study.grids import GRIDS, LR
from fedgsp.study.journals import LAST, Journal, cut
from fedgsp.study.tune import tune
from fedgsp.study.units import run_unit

Done = tuple[str, list["Journal | str"], list["Journal | str"], str]
"""A method, its journals with the paper's values and with tuned ones, and what was chosen."""

COMBINED = ("fedgsp+momentum", "fedgsp+yogi", "fedgsp+prox")
"""Beside the table's own rows."""


@dataclass(frozen=True)
class Options:
    """The command line."""

    out: Path
    data: str
    clients: int | None
    model: str
    methods: tuple[str, ...]
    rounds: int
    most_rounds: int
    tune_rounds: int
    seeds: tuple[int, ...]
    workers: int | str

    def config(self, method: Method, seed: int, rounds: int) -> RunConfig:
        """One run, judged on test samples."""
        return RunConfig(
            run=RunSection(rounds=rounds, seed=seed, workers=self.workers),
            data=DataSection(absolute(self.data), clients=self.clients),
            model=ModelSection(self.model),
            method=method,
        )


@dataclass(frozen=True)
class Entrant:
    """A method in one setting: its folder and the method itself."""

    name: str
    setting: str
    method: Method
    folder: Path

    def journals(self, options: Options, enough: Callable[[Journal], bool] = lambda journal: True) -> list[Journal | str]:
        """A journal for each seed, at least --rounds rounds long, and longer until it is `enough` or --most-rounds."""
        return [self._journal(options, seed, enough) for seed in options.seeds]

    def _journal(self, options: Options, seed: int, enough: Callable[[Journal], bool]) -> Journal | str:
        rounds = options.rounds
        while True:
            say(f"{self.name} ({self.setting}), seed {seed}, {rounds} rounds")
            found = run_unit(options.config(self.method, seed, rounds), self.folder / f"seed-{seed}")
            if isinstance(found, str) or enough(found) or rounds >= options.most_rounds:
                return found
            rounds = min(options.most_rounds, rounds + max(5, options.rounds // 3))


def entrants(options: Options) -> Iterable[tuple[Entrant, Entrant, str]]:
    """(with the paper's values, with tuned ones, what was chosen) for every method."""
    for name in options.methods:
        method, folder = named(name), options.out / name
        say(f"tuning {name}")
        best = tune(options.config(method, 0, options.tune_rounds), GRIDS.get(name, (LR,)), folder / "tune").best.point
        paper = Entrant(name, "paper", method, folder / "paper")
        yield paper, Entrant(name, "tuned", best.method, folder / f"tuned-{best.label}"), best.label


def cell(journals: list[Journal | str], key: str, budget: float) -> str:
    """Mean and spread over the seeds, in per cent."""
    if any(isinstance(journal, str) for journal in journals):
        return "diverged"
    found = [cut(journal, key, budget) for journal in journals if not isinstance(journal, str)]
    values = [100 * value for value, _ in found]
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):.1f}{spread}{'' if all(reached for _, reached in found) else '*'}"


def measure(options: Options) -> str:
    """Run everything and write the table."""
    rows = list(entrants(options))
    leader = Entrant("fedgsp", "paper", named("fedgsp"), options.out / "fedgsp" / "paper").journals(options)
    steps = fmean(j[options.rounds - 1]["serial_steps_total"] for j in leader if not isinstance(j, str))

    def walked(journal: Journal) -> bool:
        return bool(journal[-1]["serial_steps_total"] >= steps)

    done = [(p.name, p.journals(options, walked), t.journals(options, walked), chosen) for p, t, chosen in rows]
    whole = [j for _, paper, tuned, _ in done for j in (*paper, *tuned) if not isinstance(j, str)]
    traffic = min(journal[options.rounds - 1]["bytes_total"] for journal in whole)
    lines = [
        f"Measured by `benchmarks/rivals.py` with fedgsp {__version__}: {options.data.rsplit('/', 1)[-1]}"
        f"{f', {options.clients} clients' if options.clients else ''}, {options.model}, seeds "
        f"{', '.join(map(str, options.seeds))}. Test accuracy in per cent as LEAF weighs it, the mean of the last {LAST} "
        f"evaluations, ± over seeds. Left: the paper's learning rate 0.01; right: the best of the method's grid on validation "
        f"samples, {options.tune_rounds} rounds. A * could not reach the budget in {options.most_rounds} rounds.",
    ]
    head = [
        f"| method | {options.rounds} rounds | tuned | {steps:.0f} serial steps | tuned | {traffic / 1e6:.0f} MB | tuned "
        f"| chosen | serial steps a round | MB a round |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    yielded = {name: named(name).yields for name, *_ in done}
    for kind in (kind for kind in JUDGED if kind in yielded.values()):
        title = [] if kind == "one" else [f"Not comparable with the others: {JUDGED[kind]}.", ""]
        rows_of_kind = [row for row in done if yielded[row[0]] == kind]
        lines += ["", *title, *head, *_table(rows_of_kind, options, steps, traffic)]
    text = "\n".join(lines) + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(options.out / "rivals.md", text.encode())
    return text


def _table(done: list[Done], options: Options, steps: float, traffic: float) -> list[str]:
    """The rows of one table."""
    lines = []
    for name, paper, tuned, chosen in done:
        cells = [
            cell(found, key, budget)
            for key, budget in (("round", options.rounds), ("serial_steps_total", steps), ("bytes_total", traffic))
            for found in (paper, tuned)
        ]
        first = next((j[: options.rounds] for j in (*paper, *tuned) if not isinstance(j, str)), None)
        cost = ["-", "-"]
        if first is not None:
            cost = [f"{fmean(e['serial_steps'] for e in first):.0f}", f"{fmean(e['bytes'] for e in first) / 1e6:.1f}"]
        lines.append(f"| {' | '.join([name, *cells, chosen.replace(',', ', '), *cost])} |")
    return lines


def estimate(options: Options) -> str:
    """Rounds and single-core hours, from the forecast of every method."""
    total, lines = 0.0, []
    for name in options.methods:
        method = named(name)
        setup = prepare(replace(options.config(method, 0, options.rounds), run=RunSection(rounds=options.rounds, workers=0)))
        expected = forecast(setup)
        units = 1
        for axis in GRIDS.get(name, (LR,)):
            units *= axis.count(",") + 1
        last = expected.schedule[-1]
        short = last["longest"] * last.get("passes", 1) == 1
        rounds = units * options.tune_rounds + 2 * len(options.seeds) * (options.most_rounds if short else options.rounds)
        hours = rounds * expected.seconds / options.rounds / 3600
        total += hours
        lines.append(f"{name:<20} {units:>3} grid points, {rounds:>5} rounds at most, {hours:6.2f} core hours")
    return "\n".join([*lines, f"at most {total:.1f} hours of one core in all"])


def say(text: str) -> None:
    """Progress, on the error stream."""
    print(text, file=sys.stderr, flush=True)


def parsed(arguments: list[str]) -> tuple[Options, bool]:
    """The command line as options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/rivals"))
    parser.add_argument("--data", default="npz:../shared/femnist/femnist.npz:federation=femnist-368")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--methods", default=",".join((*METHODS, *COMBINED)))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--most-rounds", type=int, default=120)
    parser.add_argument("--tune-rounds", type=int, default=20)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--workers", default="auto")
    parser.add_argument("--estimate", action="store_true")
    given = parser.parse_args(arguments)
    options = Options(
        out=given.out, data=given.data, clients=given.clients, model=given.model, methods=tuple(given.methods.split(",")),
        rounds=given.rounds, most_rounds=max(given.rounds, given.most_rounds), tune_rounds=given.tune_rounds,
        seeds=tuple(int(seed) for seed in given.seeds.split(",")),
        workers=given.workers if given.workers == "auto" else int(given.workers),
    )  # fmt: skip
    return options, given.estimate


def main(arguments: list[str] | None = None) -> int:
    """Measure, or say what it would take."""
    try:
        options, only_estimate = parsed(sys.argv[1:] if arguments is None else arguments)
        print(estimate(options) if only_estimate else measure(options), end="")
    except FedgspError as error:
        say(f"rivals.py: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
