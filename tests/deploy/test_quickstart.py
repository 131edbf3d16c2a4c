"""FedGSP in a user's own ServerApp, with their own ClientApp and model: the example as it stands."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedgsp.core.errors import InputError, RunFailed
from fedgsp.deploy.client_answers import tensors_of
from fedgsp.deploy.settings import DeploySettings
from fedgsp.deploy.strategy import FedGSP
from fedgsp.methods import METHODS, named
from tests.support import flower_grid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_quickstart"


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    client, server, task = (importlib.import_module(f"quickstart.{name}") for name in ("client_app", "server_app", "task"))
    yield client.app, server, task
    for name in [name for name in sys.modules if name.startswith("quickstart")]:
        del sys.modules[name]


class OwnGrid(flower_grid.InProcessGrid):
    """The same Grid over somebody else's ClientApp."""

    def __init__(self, app: ClientApp, nodes: int) -> None:
        super().__init__({k: flower_grid.Node(k, Path(str(k))) for k in range(nodes)})
        self.app = app
        self.spoil: dict[int, Any] = {}

    def _parcel(self, node: flower_grid.Node, message: Message, fault: flower_grid.Fault) -> flower_grid.Parcel:
        def answer() -> Message:
            context = Context(1, node.number, {"partition-id": node.number}, RecordDict(), {})
            try:
                reply = self.app(message, context)
            except Exception:
                return Message(Error(2, "raised"), reply_to=message)
            if node.number in self.spoil and message.metadata.message_type == "train":
                self.spoil[node.number](reply.content)
            return reply

        return flower_grid.Parcel(message, answer, self.time + 1.0)


def test_the_server_has_under_twenty_lines() -> None:
    lines = (EXAMPLE / "quickstart" / "server_app.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 20


def test_it_learns_what_no_client_alone_could(apps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server, task = apps
    monkeypatch.chdir(tmp_path)
    grid = OwnGrid(client, 6)
    context = Context(1, 1, {}, RecordDict(), {"rounds": 12, "clients": 6})
    torch.manual_seed(0)
    monkeypatch.setattr("fedgsp.deploy.strategy.Clock", lambda poll: grid.clock)
    server.main(grid, context)
    model = task.Net()
    model.load_state_dict(torch.load("model.pt"))
    x, y = map(torch.cat, zip(*(task.load(seed) for seed in (900, 901, 902)), strict=True))  # all three classes
    assert float((model(x).argmax(1) == y).float().mean()) > 0.8  # two classes of three are at most 0.67


def test_a_round_is_the_mean_of_chains_that_hand_the_model_on(apps: Any) -> None:
    client, _, task = apps
    grid = OwnGrid(client, 2)
    torch.manual_seed(0)
    start = ArrayRecord(task.Net().state_dict())
    result = FedGSP(rounds=1, method="cwt", settings=DeploySettings(sites=2)).start(grid, start, clock=grid.clock)
    order = [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"]
    model = tensors_of(start, "x")
    for node in order:
        message = Message(RecordDict({"arrays": ArrayRecord(dict(model))}), node, "train", ttl=9.0)
        reply = client(message, Context(1, node, {"partition-id": node}, RecordDict(), {}))
        model = tensors_of(reply.content["arrays"], "x")
    for name, array in result.arrays.items():
        assert np.array_equal(array.numpy(), model[name].numpy())
    assert sorted(order) == [0, 1]


def test_the_model_that_is_handed_back_is_the_one_that_was_judged(apps: Any) -> None:
    """FedExP judges the mean of its last two models: after one round that of the start and of what round 2 trains from."""
    client, _, task = apps
    torch.manual_seed(0)
    start = ArrayRecord(task.Net().state_dict())
    once, twice = OwnGrid(client, 3), OwnGrid(client, 3)
    settings = DeploySettings(sites=3)
    result = FedGSP(rounds=1, method="fedexp", kappa=1.0, settings=settings).start(once, start, clock=once.clock)
    FedGSP(rounds=2, method="fedexp", kappa=1.0, settings=settings).start(twice, start, clock=twice.clock)
    asked: list[Any] = [m.content["arrays"] for m in once.sent if m.metadata.message_type == "evaluate"]
    later: Any = [m.content["arrays"] for m in twice.sent if m.metadata.message_type == "train"][-1]
    begun, iterate, found = (tensors_of(record, "x") for record in (start, later, result.arrays))
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, (begun[name] + iterate[name]) / 2)
        assert all(np.array_equal(record[name].numpy(), tensor.numpy()) for record in asked)
    assert any(not torch.equal(iterate[name], found[name]) for name in found)


def test_clients_that_tell_no_histogram_take_part_all_the_same(apps: Any) -> None:
    client, _, task = apps
    del client._registered_funcs["query.histogram"]
    grid = OwnGrid(client, 4)
    result = FedGSP(rounds=2, kappa=1.0, settings=DeploySettings(sites=4)).start(
        grid, ArrayRecord(task.Net().state_dict()), clock=grid.clock
    )
    assert result.train_metrics_clientapp[2]["num-examples"] == 240


def test_what_a_client_says_of_itself_buys_no_more_than_the_bound(apps: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """60 examples each: one that claims ten million, and tells no histogram, counts for five times as much as the others."""
    client, _, task = apps
    del client._registered_funcs["query.histogram"]
    grid = OwnGrid(client, 4)

    def boasts(content: Any) -> None:
        content["metrics"] = MetricRecord({**content["metrics"], "num-examples": 10_000_000})

    def huge(content: Any) -> None:
        content["metrics"] = MetricRecord({**content["metrics"], "train_loss": 1e300})

    def silent(content: Any) -> None:
        content["metrics"] = MetricRecord({"num-examples": 60})

    start, settings = ArrayRecord(task.Net().state_dict()), DeploySettings(sites=4)
    honest = FedGSP(rounds=1, kappa=1.0, settings=settings).start(grid, start, clock=grid.clock)
    names = set(honest.train_metrics_clientapp[1])
    for spoil, total in ((boasts, 180 + 300), (huge, 180), (silent, 240)):
        grid = OwnGrid(client, 4)
        grid.spoil[2] = spoil
        result = FedGSP(rounds=1, kappa=1.0, settings=settings).start(grid, start, clock=grid.clock)
        assert result.train_metrics_clientapp[1]["num-examples"] == total
        assert set(result.train_metrics_clientapp[1]) == names
    assert "beyond the bound" in capsys.readouterr().out


def test_a_histogram_of_many_million_classes_is_not_believed(apps: Any) -> None:
    client, _, task = apps
    grid = OwnGrid(client, 4)
    answer = grid.app

    def app(message: Message, context: Context) -> Message:
        if context.node_id == 2 and message.metadata.message_type == "query.histogram":
            return Message(RecordDict({"histogram": MetricRecord({"counts": [1] * 1_000_000})}), reply_to=message)
        return answer(message, context)

    grid.app = app  # type: ignore[assignment]
    settings = DeploySettings(sites=4)
    result = FedGSP(rounds=1, kappa=1.0, settings=settings).start(grid, ArrayRecord(task.Net().state_dict()), clock=grid.clock)
    assert result.train_metrics_clientapp[1]["num-examples"] == 240  # it trains as one that does not tell


def test_what_a_client_may_not_send_is_left_out(apps: Any, capsys: pytest.CaptureFixture[str]) -> None:
    client, _, task = apps
    grid = OwnGrid(client, 4)

    def nan(content: RecordDict) -> None:
        arrays = {name: array.numpy() * np.nan for name, array in content["arrays"].items()}  # type: ignore[union-attr]
        content["arrays"] = ArrayRecord({name: torch.from_numpy(array) for name, array in arrays.items()})

    grid.spoil[2] = nan
    settings = DeploySettings(sites=4)
    result = FedGSP(rounds=1, kappa=1.0, settings=settings).start(grid, ArrayRecord(task.Net().state_dict()), clock=grid.clock)
    assert result.train_metrics_clientapp[1]["num-examples"] == 180
    assert "node 2 is skipped: refused: its arrays" in capsys.readouterr().out
    grid.spoil = dict.fromkeys(range(3), nan)
    with pytest.raises(RunFailed, match="too few clients trained in round 1, 3 times"):
        FedGSP(rounds=1, kappa=1.0, settings=settings).start(grid, ArrayRecord(task.Net().state_dict()), clock=grid.clock)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_taken_or_refused_with_a_sentence(name: str) -> None:
    plain = (
        named(name).preparation is None
        and named(name).yields == "one"
        and not getattr(named(name).server, "requires_local", "")
    )
    if plain:
        assert FedGSP(method=name)._method().name == name
    else:
        with pytest.raises(InputError, match=r"fedgsp deploy|cannot be deployed"):
            FedGSP(method=name)._method()


@pytest.mark.slow
def test_it_runs_under_flowers_simulation(tmp_path: Path) -> None:
    """By `flwr run`, on a SuperLink of the test's own, so that nothing outlives it."""
    pytest.importorskip("ray", reason="flwr's simulation needs ray: pip install 'flwr[simulation]'")
    app, home = tmp_path / "app", tmp_path / "home"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "sim"\n\n[superlink.sim]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {
        **os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    command = [
        "flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port),
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    with (tmp_path / "superlink.log").open("w") as log:
        superlink = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )  # fmt: skip
    try:
        _wait_for(port, superlink)
        done = subprocess.run(
            ["flwr", "run", str(app), "sim", "--stream", "--federation-config", "num-supernodes=4"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    finally:
        os.killpg(superlink.pid, signal.SIGTERM)
        try:
            superlink.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(superlink.pid, signal.SIGKILL)
            superlink.wait(30)
    said = done.stdout + done.stderr + (tmp_path / "superlink.log").read_text()
    assert "round 3: {'accuracy'" in said, said


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        assert process.poll() is None, "the SuperLink ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.5)
    raise AssertionError("the SuperLink did not start")
