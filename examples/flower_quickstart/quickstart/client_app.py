"""An ordinary ClientApp. What it does for FedGSP is the last function: it tells its class counts, so that groups look alike."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional

from quickstart.task import CLASSES, Net, load

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Some epochs of plain SGD."""
    model, (x, y) = _model(message), load(int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Accuracy on the client's own points."""
    model, (x, y) = _model(message), load(int(context.node_config["partition-id"]))
    with torch.inference_mode():
        right = float((model(x).argmax(dim=1) == y).float().mean())
    return Message(RecordDict({"metrics": MetricRecord({"accuracy": right, "num-examples": len(y)})}), reply_to=message)


@app.query("histogram")
def histogram(message: Message, context: Context) -> Message:
    """How many samples of each class; leave this out, and the client is spread at random."""
    _, y = load(int(context.node_config["partition-id"]))
    counts = torch.bincount(y, minlength=CLASSES).tolist()
    return Message(RecordDict({"histogram": MetricRecord({"counts": counts})}), reply_to=message)


def _model(message: Message) -> Net:
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model
