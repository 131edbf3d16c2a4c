"""FedGSP in a ServerApp of your own."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedgsp.deploy.settings import DeploySettings
from fedgsp.deploy.strategy import FedGSP
from quickstart.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train in chains: sequential at first, more and more parallel."""
    rounds, clients = int(context.run_config["rounds"]), int(context.run_config["clients"])
    strategy = FedGSP(rounds, kappa=0.5, settings=DeploySettings(sites=clients))
    result = strategy.start(grid, ArrayRecord(Net().state_dict()))
    torch.save(result.arrays.to_torch_state_dict(), "model.pt")
