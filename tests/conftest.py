"""What all tests share: a data cache of their own, so that none touches the user's, one math thread, signals that are heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.quick"]


settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

TOGETHER = ("tests/engine/transports/ray", "tests/deploy", "tests/browser")
"""Folders whose tests share something of the machine (a Ray, ports, a browser): one process runs all of a folder's."""


@pytest.hookimpl(tryfirst=True)  # xdist looks at groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell tests apart.

    Slow tests of deployments and of killed runs wait for processes most of the time. Where several processes run the tests
    (`-n 2 --dist loadgroup`), a file stays with one of them, so that what its tests share is made once.
    """
    for item in items:
        file = item.path.relative_to(item.config.rootpath).as_posix()
        if item.get_closest_marker("slow") and {"deploy", "run"} & set(file.split("/")):
            item.add_marker("beside")
        group = next((folder for folder in TOGETHER if file.startswith(folder)), file)
        item.add_marker(pytest.mark.xdist_group(group))


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
