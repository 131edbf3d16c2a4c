"""What all tests share: a data cache of their own, so that none touches the user's, one math thread, signals that are heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.quick"]


settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

TOGETHER = ("tests/engine/transports/ray", "tests/deploy", "tests/browser")
"""Folders whose tests share something of the machine (a Ray, ports, a browser): one process runs all of a folder's."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests of deployments and of killed runs wait for processes most of the time."""
    for item in items:
        folders = set(item.path.relative_to(item.config.rootpath).parts)
        if item.get_closest_marker("slow") and {"deploy", "run"} & folders:
            item.add_marker("beside")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where several processes run the tests, a file stays with one of them, so that what its tests share is made once.

    xdist's own marks of groups do not work with pytest 9.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        """Scopes are files, or the folders of `TOGETHER`."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return ByFile(config, log)


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
