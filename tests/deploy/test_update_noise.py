"""Noise of sites: from a key of their own, which never leaves them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fedgsp.client import SGD, UpdateNoise
from fedgsp.core.errors import InputError
from fedgsp.engine.transports.flower.noise_key import FILE, noise_key
from tests.support.grid_deployments import chains, deployment


def test_a_deployment_whose_sites_noise_their_updates(tmp_path: Path) -> None:
    rule = SGD(lr=0.05, batch_size=3, privacy=UpdateNoise(clip=0.1, noise=0.5))
    fed = deployment(tmp_path, chains(2, rule), clients=3, rounds=1)
    result = fed.serve()
    assert result.history[-1]["epsilon_local"] > 0
    keys = {path.read_text() for path in tmp_path.rglob(FILE)}
    assert len(keys) == 3
    assert result.state.digest() != fed.local().state.digest()  # which draws from the seed that the server knows
    assert not any(key in path.read_text(errors="replace") for key in keys for path in fed.run.rglob("*") if path.is_file())
    with pytest.raises(InputError, match="keys of their own, so this run cannot be replayed"):
        fed.replay()


def test_a_key_is_made_once_and_is_the_owners(tmp_path: Path) -> None:
    key = noise_key(tmp_path / "state")
    assert noise_key(tmp_path / "state") == key
    assert len(key) == 8
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600
    (tmp_path / "state" / FILE).write_text("short")
    with pytest.raises(InputError, match="is not a key"):
        noise_key(tmp_path / "state")
