"""Every method ends in the same bits on every engine: this process, two processes, Ray, sites over Flower.

A commit tries some of the methods on each, `make test-exhaustive` all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedgsp.core.errors import InputError
from fedgsp.data.export import export
from fedgsp.deploy.server_app import serve
from fedgsp.deploy.settings import DeploySettings, check_deployable
from fedgsp.engine.transports.ray.cluster import Cluster
from fedgsp.engine.transports.ray.settings import RaySettings
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from tests.support import flower_grid, golden

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", golden.NAMES)]


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    """One Ray for all methods: an engine uses the one that it finds."""
    cluster = Cluster(RaySettings(workers=2))
    yield
    cluster.close()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A site for each client of the golden federation."""
    folder = tmp_path_factory.mktemp("golden")
    export(golden.federation(), "npz", folder / "data.npz")
    return flower_grid.write_sites(folder / "sites", f"npz:{folder / 'data.npz'}", golden.CLIENTS, models=[golden.MODEL])


@pytest.mark.sampled(12)
def test_two_processes(name: str) -> None:
    assert golden.run(name, workers=2).state.digest() == golden.digest(name)


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("ray_here")
def test_ray(name: str) -> None:
    assert golden.run(name, workers=2, engine="ray").state.digest() == golden.digest(name)


@pytest.mark.sampled(8)
def test_flower(name: str, sites: list[Path], tmp_path: Path) -> None:
    grid = flower_grid.grid_of(sites)
    run = RunSection(rounds=golden.ROUNDS)
    config = RunConfig(run, DataSection("sites"), ModelSection(golden.MODEL), golden.method(name))
    if config.method.preparation is not None:
        with pytest.raises(InputError, match=f"the method '{name}' cannot be deployed: its preparation .* of all clients"):
            check_deployable(config)
        return
    result = serve(grid, config, DeploySettings(sites=len(sites)), tmp_path / "run", clock=grid.clock)
    assert result.state.digest() == golden.digest(name)
