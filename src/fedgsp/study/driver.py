"""What a driver of `tune` does: it chooses the points of a search, and says what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fedgsp.run.config import RunConfig
    from fedgsp.study.grid import Axis, Point
    from fedgsp.study.history import History
    from fedgsp.study.tune import Tuning


class Driver(Protocol):
    """Who chooses the points of a search, one after the other."""

    def check(self) -> None:
        """Refuse what makes no sense, or what is not installed."""

    def search(
        self,
        config: RunConfig,
        axes: Sequence[Axis],
        run: Callable[..., History | str],
        place: Callable[[Point, int], Path],
        *,
        seeds: Sequence[int],
        score: str | None,
    ) -> Tuning:
        """Run some points.

        Args:
            config: What is tuned, evaluated on the validation part.
            axes: What is searched.
            run: Gives the journal of a point's run (or a text where it diverged); it takes callbacks too.
            place: The folder of a point's run with a seed.
            seeds: Every point is run with each.
            score: The metric that decides. None: the loss.
        """
