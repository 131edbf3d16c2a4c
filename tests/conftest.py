"""What all tests share: a data cache of their own, so that none touches the user's, one math thread, signals that are heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch

pytest_plugins = ["tests.quick", "tests.sampling", "tests.scheduling", "tests.counting"]


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepared data of the tests lives in a temporary folder, also for the processes they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDGSP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("FEDGSP_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """The nets of the tests are tiny: more threads would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def heard_signals() -> None:
    """Tests send SIGINT and SIGHUP to processes they start; under nohup, or in a script's background, nobody would hear."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
