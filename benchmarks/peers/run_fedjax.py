"""FedJAX: its federated_averaging on XLA, with the same network written in jax.lax, from the same start."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

CORES = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(CORES)})  # XLA starts as many threads as it sees cores; they are let loose below
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
import jax  # noqa: E402

if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree_util.tree_map  # fedjax 0.0.17 is older than its removal
import fedjax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from link import EVALUATED_ON, Link, Work  # noqa: E402

work, link = Work.read(), Link()


def convolved(x: Any, w: Any, b: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b
    y = jnp.maximum(y, 0.0)
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def logits(p: Any, x: Any) -> Any:
    if work.name == "tiny":
        return x @ p["weight"].T + p["bias"]
    x = convolved(x[..., None], p["features.0.weight"], p["features.0.bias"])
    x = convolved(x, p["features.3.weight"], p["features.3.bias"])
    x = x.reshape(len(x), -1)
    x = jnp.maximum(x @ p["classifier.1.weight"] + p["classifier.1.bias"], 0.0)
    return x @ p["classifier.3.weight"] + p["classifier.3.bias"]


def start() -> dict[str, Any]:
    """Torch's weights in the layouts that XLA is fastest with: images (row, column, channel), matrices (in, out)."""
    if work.name == "tiny":
        return {name: jnp.asarray(values) for name, values in work.init.items()}
    found = dict(work.init)
    for name in ("features.0.weight", "features.3.weight"):
        found[name] = found[name].transpose(2, 3, 1, 0)
    wide = found["classifier.1.weight"]
    channels, side = 64, int((wide.shape[1] // 64) ** 0.5)
    found["classifier.1.weight"] = wide.reshape(-1, channels, side, side).transpose(2, 3, 1, 0).reshape(wide.shape[1], -1)
    found["classifier.3.weight"] = found["classifier.3.weight"].T
    return {name: jnp.asarray(np.ascontiguousarray(values)) for name, values in found.items()}


def mean_loss(params: Any, batch: Any, rng: Any = None) -> Any:
    scores = jax.nn.log_softmax(logits(params, batch["x"]))
    return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()


def loss(params: Any) -> float:
    x, y = work.x.reshape(-1, *work.x.shape[2:])[::EVALUATED_ON], work.y.reshape(-1)[::EVALUATED_ON]
    judged = jax.jit(mean_loss)
    size = 100 if len(y) % 100 == 0 else len(y)
    parts = [float(judged(params, {"x": x[i : i + size], "y": y[i : i + size]})) for i in range(0, len(y), size)]
    return sum(parts) / len(parts)


steps = 0


class Counted(fedjax.ClientDataset):  # type: ignore[misc]
    def shuffle_repeat_batch(self, *given: Any, **named: Any) -> Any:
        def counting() -> Any:
            global steps
            for batch in batches:
                steps += 1
                yield batch

        batches = super().shuffle_repeat_batch(*given, **named)
        return counting()


clients = [Counted({"x": x, "y": y.astype(np.int32)}) for x, y in zip(work.x, work.y, strict=True)]
algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(mean_loss), fedjax.optimizers.sgd(work.lr), fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1, drop_remainder=False),
)  # fmt: skip
state = algorithm.init(start())
jax.block_until_ready(jnp.zeros(1) + 1)
for thread in Path("/proc/self/task").iterdir():
    os.sched_setaffinity(int(thread.name), CORES)
link.ready(1, "for_each_client by jit")
key = jax.random.PRNGKey(0)
while True:
    key, use = jax.random.split(key)
    chosen = random.sample(range(len(clients)), work.per_round)
    keys = jax.random.split(use, work.per_round)
    state, _ = algorithm.apply(state, [(str(k), clients[k], rng) for k, rng in zip(chosen, keys, strict=True)])
    jax.block_until_ready(state.params)
    link.round_done(steps, lambda params=state.params: loss(params))
