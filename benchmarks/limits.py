"""How near the compiled kernels are to what this machine can do, layer by layer of leaf_cnn.

    OMP_NUM_THREADS=1 python benchmarks/limits.py [--batch 5] [--repeats 15]

First the machine: float32 operations a second of a large matrix product with one thread, bytes a second of reading and of
copying a large array. Then the network: programs of its first layers (with a narrow head behind) are timed and subtracted,
forward alone and forward with backward and update (with a learning rate of 0, so that every repetition does the same work).
What a layer needs is counted, not measured: two operations a multiplication, for backward only those whose gradient is not
exactly zero (behind ReLU and max-pool most are), which are counted on the trained network itself. Bytes are those of the
weights, once forward and twice (read, write) backward. Times are the least of several, in CPU time: a busy machine makes them
longer, never shorter.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn import functional

import fedgsp
from fedgsp.core.native import Library
from fedgsp.data.batches import gather
from fedgsp.fast import Step
from fedgsp.fast.build import library
from fedgsp.fast.fused import FusedNet
from fedgsp.fast.layers import LINEAR, LayerSpec
from fedgsp.fast.program import Program, program_of
from fedgsp.models import leaf_cnn

SAMPLES = 100
HEAD = 8
NAMES = ("conv 1-32, 28x28", "conv 32-64, 14x14", "linear 3136-2048", "linear 2048-62, loss")
COUNTED = "MFLOP | GFLOP/s | of peak | GB/s"


def least(work: Callable[[], object], repeats: int) -> float:
    """The least CPU seconds of some repetitions."""
    work()
    took = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def machine(repeats: int) -> tuple[float, float, float]:
    """(GFLOP/s of a product, GB/s of reading, GB/s of copying, read and written bytes counted), one thread."""
    flops = 0.0
    for side in (256, 512, 1024):
        a, b, out = torch.rand(side, side), torch.rand(side, side), torch.empty(side, side)
        many = 1024**3 // side**3  # as much work at every size

        def products(a: torch.Tensor = a, b: torch.Tensor = b, out: torch.Tensor = out, many: int = many) -> None:
            for _ in range(many):
                torch.mm(a, b, out=out)

        flops = max(flops, 2 * 1024**3 / least(products, 3 * repeats))
    large = torch.rand(64 * 1024 * 1024)
    other = torch.empty_like(large)
    reading = 4 * large.numel() / least(lambda: large.sum(), repeats)
    copying = 8 * large.numel() / least(lambda: other.copy_(large), repeats)
    return flops / 1e9, reading / 1e9, copying / 1e9


class Timed:
    """A program of some layers, on weights and samples of its own."""

    def __init__(self, layers: Sequence[LayerSpec], model: torch.nn.Module, x: torch.Tensor, size: int, found: Library) -> None:
        self.net = FusedNet(model, Program(tuple(layers), lambda given: given, (layers[-1].cout,)), size, found)
        self.x, self.y, self.size = x, torch.zeros(len(x), dtype=torch.int64), size

    def forward(self, repeats: int) -> float:
        return least(lambda: self.net(self.x), repeats) / (len(self.x) / self.size)

    def training(self, repeats: int) -> float:
        self.net.begin(Step(0.0))
        took = least(lambda: self.net.train(self.x, self.y, self.size), repeats) / (len(self.x) / self.size)
        self.net.end()
        return took


class Headed(torch.nn.Module):
    """The convolutions of a network and a head of a few outputs, so that the first layers can be trained without the rest."""

    def __init__(self, model: torch.nn.Module, inputs: int) -> None:
        super().__init__()
        self.features = model.features
        self.head = torch.nn.Linear(inputs, HEAD)


def head_of(inputs: int, outputs: int, name: str = "head") -> LayerSpec:
    return LayerSpec(LINEAR, inputs, outputs, f"{name}.weight", f"{name}.bias")


def cost_of_head(inputs: int, outputs: int, size: int, found: Library, repeats: int) -> tuple[float, float]:
    """(forward, whole step) of a linear layer and the loss; the gradient of its inputs is taken to cost as much as forward."""
    holder = torch.nn.ModuleDict({"head": torch.nn.Linear(inputs, outputs)})
    timed = Timed([head_of(inputs, outputs)], holder, torch.rand(SAMPLES, inputs), size, found)
    ahead = timed.forward(repeats)
    return ahead, timed.training(repeats) + ahead


def trained(size: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """leaf_cnn after some epochs on glyphs, and samples it has not seen: the share of dead units is that of real training."""
    data = fedgsp.load("glyphs")
    torch.manual_seed(0)
    model = leaf_cnn(data.sample_shape, data.classes)
    rows = np.concatenate([data.train[k] for k in range(10)])
    x, y = gather(data, rows)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for at in range(SAMPLES, len(y), size):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[at : at + size]), y[at : at + size]).backward()
        optimizer.step()
    return model, x[:SAMPLES].contiguous(), y[:SAMPLES]


def alive(model: torch.nn.Module, x: torch.Tensor, size: int) -> list[float]:
    """The share of outputs (convolutions, pool counted) or rows (linear, over a batch) that have a gradient at all."""
    with torch.no_grad():
        stages = list(model.features)  # type: ignore[arg-type]
        first = functional.max_pool2d(functional.relu(stages[0](x.unsqueeze(1))), 2)
        second = functional.max_pool2d(functional.relu(stages[3](first)), 2)
        wide = functional.relu(model.classifier[1](second.flatten(1)))  # type: ignore[index, operator]
        rows = (wide.reshape(-1, size, wide.shape[1]) > 0).any(dim=1).float().mean()
    return [float((first > 0).float().mean()) / 4, float((second > 0).float().mean()) / 4, float(rows), 1.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = library()
    if isinstance(found, str):
        raise SystemExit(f"there are no compiled kernels here: {found}")
    size, repeats = options.batch, options.repeats
    peak, reading, copying = machine(repeats)
    print(f"One thread: {peak:.0f} GFLOP/s (matrix product), {reading:.1f} GB/s reading, {copying:.1f} GB/s copying\n")
    model, x, y = trained(size)
    program = program_of(model, x[:2])
    images, layers = program.prepare(x).contiguous(), program.layers
    whole = Timed(layers, model, images, size, found)
    whole.y = y
    whole_ahead, whole_step = whole.forward(repeats), whole.training(repeats)
    last_ahead, last_step = cost_of_head(layers[3].cin, layers[3].cout, size, found, repeats)
    ahead, steps = [], []
    for count in (1, 2):
        flat = layers[count - 1].cout * (layers[count - 1].size[0] // 2) ** 2
        part = Timed([*layers[:count], head_of(flat, HEAD)], Headed(model, flat), images, size, found)
        head_ahead, head_step = cost_of_head(flat, HEAD, size, found, repeats)
        ahead.append(part.forward(repeats) - head_ahead - sum(ahead))
        steps.append(part.training(repeats) - head_step - sum(steps))
    ahead += [whole_ahead - last_ahead - sum(ahead), last_ahead]
    steps += [whole_step - last_step - sum(steps), last_step]
    shares = alive(model, x, size)
    print(f"| layer | forward ms | {COUNTED} | backward + update ms | share with a gradient | {COUNTED} |\n|{' --- |' * 12}")
    sums = np.zeros(4)
    for i, (layer, name) in enumerate(zip(layers, NAMES, strict=True)):
        if layer.kind == LINEAR:
            products, weights = size * layer.cin * layer.cout, 4 * layer.cin * layer.cout
        else:
            taps = layer.kernel[0] * layer.kernel[1] * layer.cin * layer.cout
            products, weights = size * layer.size[0] * layer.size[1] * taps, 4 * taps
        ways = 2 if i else 1  # the first layer needs no gradient of its inputs
        ahead_s, back_s = ahead[i], max(1e-9, steps[i] - ahead[i])
        ahead_f, back_f = 2 * products, 2 * products * ways * shares[i]
        back_bytes = 2 * weights * (shares[i] if layer.kind == LINEAR else 1.0)
        sums += (ahead_s, ahead_f, back_s, back_f)
        first, second = judged(ahead_f, ahead_s, peak, weights), judged(back_f, back_s, peak, back_bytes)
        print(f"| {name} | {1e3 * ahead_s:.2f} | {first} | {1e3 * back_s:.2f} | {shares[i]:.0%} | {second} |")
    first, second = judged(sums[1], sums[0], peak), judged(sums[3], sums[2], peak)
    print(f"| whole step | {1e3 * sums[0]:.2f} | {first} | {1e3 * sums[2]:.2f} | | {second} |")
    least_s = (sums[1] + sums[3]) / peak / 1e9
    wide = 4 * layers[2].cin * layers[2].cout
    bytes_s = wide / reading / 1e9 + 2 * wide * shares[2] / copying / 1e9
    print(
        f"\nA step of {size} takes {1e3 * whole_step:.2f} ms. Its operations at the machine's peak would take "
        f"{1e3 * least_s:.2f} ms, the large layer's weights alone {1e3 * bytes_s:.2f} ms from memory."
    )


def judged(flops: float, seconds: float, peak: float, weights: float | None = None) -> str:
    """Operations needed, how fast they were done, how that compares, and the bytes a second where they are asked for."""
    rate = flops / seconds / 1e9
    moved = "" if weights is None else f"{weights / seconds / 1e9:.1f}"
    return f"{flops / 1e6:.0f} | {rate:.1f} | {rate / peak:.0%} | {moved}"


if __name__ == "__main__":
    main()
