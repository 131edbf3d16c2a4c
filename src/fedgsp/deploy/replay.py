"""Replaying a deployment on one machine that has the samples of all its sites."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from fedgsp.deploy.server_evaluation import with_server_evaluation
from fedgsp.deploy.site_log import ReplayedAvailability, SiteLog, gathered, outline
from fedgsp.run import replay as ordinary
from fedgsp.run.build import RunBuilder
from fedgsp.run.replay import Recording, Replay
from fedgsp.run.replay_engine import ReplayEngine

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStore
    from fedgsp.core.chain import HopReport
    from fedgsp.engine.base import Engine
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.config import RunConfig
    from fedgsp.run.run import Run


def replay(
    path: Path,
    *,
    builder: RunBuilder = RunBuilder(),  # noqa: B008 - frozen
    workers: int | str = "auto",
    callbacks: Sequence[Callback] = (),
    source: str | None = None,
    other_numerics: bool = False,
) -> Replay:
    """Replay a run, of a deployment or not.

    Args:
        path: The run directory.
        builder: Makes the run of its configuration; its `data` are the samples of all sites, where `source` names none.
        workers: Worker processes.
        callbacks: Are told how it goes.
        source: A data source with the samples of all sites.
        other_numerics: See `fedgsp.run.replay.replay`.

    Returns:
        How many rounds agree, and the first difference, if any.

    Raises:
        InputError: There is nothing to replay, or not with these data or numerics.
    """
    log = SiteLog()
    log.read(path)
    recording = Recording(log) if log.samples is None else SiteRecording(log, source)
    return ordinary.replay(
        path, builder=builder, workers=workers, callbacks=callbacks, other_numerics=other_numerics, recording=recording
    )


@dataclass(frozen=True)
class SiteRecording(Recording):
    """How a deployment's run went."""

    log: SiteLog
    source: str | None

    def how_far(self, rounds: int) -> tuple[int, str | None]:
        """See `Recording.how_far`: a site that changed its data has no longer what it trained on before."""
        changed = self.log.data_changed_in()
        if changed is None or changed[0] > rounds:
            return rounds, None
        round_, name = changed
        if round_ == 1:
            raise InputError(
                f"the site '{name}' changed its data in the first round, so there is nothing that could be replayed."
            )
        return round_ - 1, f"the site '{name}' had new data from round {round_} on"

    def build(self, config: RunConfig, builder: RunBuilder, kernel: str | None) -> tuple[Run, Run]:
        """See `Recording.build`: the run was begun without samples, and is replayed with them."""
        if config.method.local.privacy is not None:
            raise InputError("sites drew the noise on their updates from keys of their own, so this run cannot be replayed.")
        assert self.log.samples is not None
        original = replace(builder, data=outline(self.log.samples, self.log.first.values(), self.log.weight_bound)).build(
            config, kernel=kernel
        )
        original = replace(original, worker_setup=replace(original.worker_setup, wire=self.log.samples.wire))
        data = gathered(self._all_samples(config, builder), self.log, bool(config.data.validation))
        if config.data.validation:
            data = data.with_validation(config.data.validation, config.data.seed)
        setup, available = replace(original.worker_setup, data=data), ReplayedAvailability(self.log, data)
        return with_server_evaluation(replace(original, data=data, worker_setup=setup, availability=available)), original

    def engine(self, run: Run, store: ClientStore | None) -> Engine:
        """See `Recording.engine`: clients count for what the server believed."""
        available, setup = run.availability, run.worker_setup
        assert isinstance(available, ReplayedAvailability)
        batching, epochs_in = setup.batching(), setup.rule.epochs_in
        counted = functools.cache(available.counted)

        def believed(round_: int, hop: HopReport) -> HopReport:
            samples = int(counted(round_)[hop.client])
            return replace(hop, samples=samples, steps=epochs_in(round_) * int(batching.steps(np.array(samples))))

        metrics = tuple(setup.task.metrics)
        return ReplayEngine(run.engine(store), self.log, run.data, metrics, believed=believed)

    def _all_samples(self, config: RunConfig, builder: RunBuilder) -> FederatedData:
        if builder.data is not None:
            return builder.data
        if self.source is None:
            raise InputError(
                "the samples of this run are at its sites; to replay it, name a source that has all of them: --data SOURCE."
            )
        return load(self.source, data_seed=config.data.seed)
