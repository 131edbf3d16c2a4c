"""Flower's simulation (Ray), message API: two actors of one core each, its own FedAvg."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from link import MANY, Link, Work

client_app, server_app = ClientApp(), ServerApp()
held: dict[str, Any] = {}


@client_app.train()
def train(message: Any, context: Any) -> Any:
    """Runs in an actor, which reads the data once and keeps it."""
    import torch
    from link import Work
    from torch.nn.functional import cross_entropy

    if not held:
        torch.set_num_threads(1)
        work = Work.read()
        held.update(work=work, data=work.tensors(), model=work.model())
    work, model = held["work"], held["model"]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = held["data"][context.node_config["partition-id"]]
    order = torch.randperm(len(y))
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
    for at in range(0, len(y), work.batch):
        part = order[at : at + work.batch]
        optimizer.zero_grad()
        cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
    steps = -(-len(y) // work.batch)
    told = MetricRecord({"num-examples": len(y), "steps": steps, "threads": torch.get_num_threads()})
    return Message(content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": told}), reply_to=message)


work, link, total = Work.read(), Link(), 0


class Counting(FedAvg):  # type: ignore[misc]
    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        global total
        replies = list(replies)
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"a client failed: {reply.error.reason}")
            total += int(reply.content["metrics"]["steps"])
            assert reply.content["metrics"]["threads"] == 1
        return super().aggregate_train(server_round, replies)


def done(server_round: int, arrays: Any) -> None:
    def loss() -> float:
        model = work.model()
        model.load_state_dict(arrays.to_torch_state_dict())
        return work.loss(model)

    if server_round == 0:
        link.ready(torch.get_num_threads(), "Ray, 2 actors")
    else:
        link.round_done(total, loss)


@server_app.main()
def main(grid: Any, context: Any) -> None:
    torch.set_num_threads(1)
    share = work.per_round / len(work.y)
    strategy = Counting(
        fraction_train=share, fraction_evaluate=0.0, min_train_nodes=work.per_round, min_available_nodes=len(work.y)
    )
    start = ArrayRecord(work.model().state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=MANY, evaluate_fn=done)


run_simulation(
    server_app, client_app, num_supernodes=len(work.y),
    backend_config={
        "init_args": {"num_cpus": 2, "include_dashboard": False}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    },
)  # fmt: skip
