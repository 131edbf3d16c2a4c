"""The paper's settings for a study's runs: its methods with a preset's values, and the best of their grids."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedgsp.core.errors import InputError
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import Constant, Grouped, Singletons
from fedgsp.report.inspect import class_counts
from fedgsp.report.landmarks import scale
from fedgsp.study.climb import climb
from fedgsp.study.grids import grid_of
from fedgsp.study.records import Arm, DataFacts
from fedgsp.study.study_runner import StudyRunner
from fedgsp.study.tune import RunPoint, Tuning, evaluate_grid

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.run.config import RunConfig
    from fedgsp.study.history import History
    from fedgsp.study.paper.dealing import Dealing
    from fedgsp.study.paper.presets import Preset


def check_data(data: FederatedData) -> None:
    """Refuse data that the paper's studies say nothing of."""
    if not data.classes:
        raise InputError("the paper's studies are about classes; for other targets use fedgsp compare, which compares losses.")
    if data.test.sizes.sum() == 0:
        raise InputError("no client has a test sample, so there is nothing to study; keep some, with test=0.1 in the source.")


@dataclass(frozen=True)
class Tuned:
    """A method with the values that tuning chose on validation samples."""

    method: Method
    label: str


class PaperRunner(StudyRunner):
    """A `StudyRunner` with the values of a preset.

    Args:
        preset: The settings of every study.
        data: As for `StudyRunner`.
        facts: As for `StudyRunner`.
        out: As for `StudyRunner`.
        methods: The methods of studies that take any; none: the study's own.
        options: As for `StudyRunner`.
    """

    def __init__(
        self,
        preset: Preset,
        data: FederatedData | None,
        facts: DataFacts,
        out: Path,
        *,
        methods: Sequence[str] = (),
        workers: int | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data, facts, out, workers=preset.workers if workers is None else workers, **options)
        self.preset, self.methods = preset, tuple(methods)
        self.tunings: dict[str, Tuning] = {}
        self._dealings: dict[Dealing, FederatedData] = {}

    def method(self, name: str) -> Method:
        """A named method with the preset's values in place."""
        method, preset = named(name), self.preset
        local = replace(method.local, lr=preset.lr, batch_size=preset.batch_size)
        planner = method.planner
        if isinstance(planner, Grouped):
            growth = planner.growth
            if isinstance(growth, Constant):
                growth = Constant(preset.beta)
            elif not isinstance(growth, Singletons):
                growth = replace(growth, beta=preset.beta)  # type: ignore[type-var]
            kappa = planner.kappa if method.server.needs_everybody else preset.kappa_default
            planner = replace(planner, kappa=kappa, growth=growth)
        return replace(method, local=local, planner=planner)

    def tuned(self, name: str, arm: Arm, *, wider: bool = False) -> Tuned:
        """The method with the best values of its grid, chosen on validation samples (`best_of`)."""
        method = self.method(name)
        return self.best_of(name, method, grid_of(method), arm, wider=wider)

    def best_of(self, name: str, method: Method, grid: Sequence[str], arm: Arm, *, wider: bool = False) -> Tuned:
        """A method of any kind with the best values of a grid; a preset with a grid of its own has that for all.

        Args:
            name: What its tuning is called.
            method: What is tuned.
            grid: NAME=VALUE,VALUE,... texts.
            arm: Says the model.
            wider: Whether values beyond the grid's edges are tried until the best is inside, with the preset's seeds; else the
                grid is taken as it is, with seed 0.
        """
        preset = self.preset
        config = self.config(method, replace(arm, rounds=preset.tune_rounds), 0).on_validation()
        wanted, run = preset.grid or grid, self._runs_of(name)
        if wider:
            found = climb(config, wanted, run, seeds=range(preset.tune_seeds), limit=preset.tune_beyond)
        else:
            found = evaluate_grid(config, wanted, run)
        self.tunings[name] = found
        return self.chosen(found, config)

    def chosen(self, found: Tuning, config: RunConfig) -> Tuned:
        """What a grid chose."""
        return Tuned(found.best.point.method, found.best.point.label)

    def dealt(self, dealing: Dealing) -> Self:
        """A runner for the same samples in other hands; what it runs goes to the same store and the same page."""
        told = self.dealing_facts(dealing)
        if told["fingerprint"] == self.facts.fingerprint:
            return self
        source = f"{self.facts.source} dealt anew: {dealing.skew}, {told['clients']} clients"
        other = copy(self)
        other.facts = DataFacts(source, told["fingerprint"], told["clients"], told["samples"])
        other.put_data(None if self._data is None else self._hands(dealing))
        return other

    def dealing_facts(self, dealing: Dealing) -> dict[str, Any]:
        """What pages say of a dealing (`Dealing.facts`): computed once, and kept with the runs."""
        key = {"skew": dealing.skew, "clients": dealing.clients}
        found: dict[str, Any] = self.computed("dealing", key, lambda: facts_of(self._hands(dealing)))
        return found

    def _hands(self, dealing: Dealing) -> FederatedData:
        if dealing not in self._dealings:
            self._dealings[dealing] = dealing.of(self.data)
        return self._dealings[dealing]

    def sweeps(self) -> dict[str, Any]:
        """What the grids said, for a study's facts."""
        return {name: found.as_dict() for name, found in self.tunings.items()}

    def _runs_of(self, name: str) -> RunPoint:
        return lambda point, config: self._history(f"tuning {name} {point.label}", config)

    def _history(self, name: str, config: RunConfig) -> History | str:
        found = self.trace(name, replace(config, method=replace(config.method, name=name)))
        return found.diverged or found.history


def facts_of(data: FederatedData, *, skew: bool = True) -> dict[str, Any]:
    """What pages say of a federation: fingerprint, sizes, and its place between i.i.d. (0) and one class a client (100)."""
    told = {"fingerprint": data.fingerprint, "clients": len(data), "samples": data.samples}
    return told | {"label_skew": 100 * float(scale(class_counts(data)).place)} if skew else told
