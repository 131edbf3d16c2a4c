"""Federated simulators side by side: the same work, in turns, in one run; CPU seconds of whole process trees, memory, ratios.

    make bench-peers            (or: python benchmarks/peers.py --setup .peers; python benchmarks/peers.py --env .peers)

cnn     a FedAvg round of leaf_cnn: 16 of 64 clients of 100 images, batches of 5, one epoch, SGD 0.01
tiny    1,000 clients of 20 samples of 32 numbers, logistic regression, batches of 5, all train in a round
chains  a FedGSP round of leaf_cnn, 2 chains of 8 clients, against a plain loop that walks such chains

The peers live in an environment of their own (--setup makes it), never in the project's. A contestant is a process that trains
when it is told to (peers/link.py); all are started, then each trains in turn, so that a busy machine disturbs all alike. Before
anything is timed a round warms up; the loss after the first rounds must be near plain PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from contestant import Contestant, Entry, Lost, start

PINNED = ("torch==2.13.0",)
INSTALLS = (
    # (what, without its dependencies)
    (
        (
            "torch==2.13.0",
            "numpy",
            "scipy",
            "safetensors",
            "typer",
            "rich",
            "cloudpickle",
            "tomli_w",
            "platformdirs",
            "filelock",
        ),
        False,
    ),
    (("flwr[simulation]",), False),
    (("pfl",), False),
    (("fedjax==0.0.17",), False),
    (("fedlab", "fluke-fl"), True),  # both want torchvision, whose build on PyPI does not match a CPU build of torch
    (
        (
            "pandas",
            "scikit-learn",
            "torchmetrics",
            "tqdm",
            "munch",
            "pynvml",
            "psutil",
            "diskcache",
            "omegaconf",
            "cerberus",
            "matplotlib",
            "seaborn",
        ),
        False,
    ),
)
OURS = "fedgsp, this process"
LONG_ENOUGH = 1.0
"""Seconds of CPU that a turn should take to be timed well."""


FEDAVG = {
    "plain PyTorch": Entry("run_plain.py", ("1",), peer=False),
    OURS: Entry("run_fedgsp.py", ("0", "auto"), peer=False),
    "fedgsp, 2 workers": Entry("run_fedgsp.py", ("2", "auto"), peer=False),
    "fedgsp, fast off": Entry("run_fedgsp.py", ("0", "off"), peer=False),
    "pfl-research": Entry("run_pfl.py", package="pfl"),
    "FedJAX": Entry("run_fedjax.py", package="fedjax"),
    "FedLab": Entry("run_fedlab.py", package="fedlab"),
    "fluke": Entry("run_fluke.py", package="fluke-fl"),
    "Flower": Entry("run_flower.py", package="flwr"),
}
CHAINS = {
    "plain PyTorch": Entry("run_plain.py", ("8",), peer=False),
    OURS: Entry("run_fedgsp.py", ("0", "auto", "8"), peer=False),
    "fedgsp, 2 workers": Entry("run_fedgsp.py", ("2", "auto", "8"), peer=False),
    "fedgsp, fast off": Entry("run_fedgsp.py", ("0", "off", "8"), peer=False),
}
WORKS = {"cnn": FEDAVG, "tiny": FEDAVG, "chains": CHAINS}


def make_work(name: str, folder: Path, per_round: int | None) -> None:
    """Data, start weights and what is to be done, once for all."""
    import torch

    rng = np.random.default_rng(0)
    told: dict[str, Any] = {"name": "tiny" if name == "tiny" else "cnn", "batch": 5, "lr": 0.01}
    torch.manual_seed(0)
    if name == "tiny":
        x = rng.normal(size=(1000, 20, 32)).astype(np.float32)
        y = (x @ rng.normal(size=(32, 10)).astype(np.float32)).argmax(axis=2)
        model: torch.nn.Module = torch.nn.Linear(32, 10)
        told |= {"per_round": per_round or 1000, "classes": 10}
    else:
        from fedgsp.data.glyphs import generate
        from fedgsp.models import leaf_cnn

        glyphs = generate(100, 0)
        sizes = np.diff(glyphs.offsets)
        writers = np.flatnonzero(sizes >= 100)[:64]
        rows = glyphs.offsets[writers][:, None] + np.arange(100)
        x, y = glyphs.images[rows].astype(np.float32) / 255, glyphs.labels[rows].astype(np.int64)
        model = leaf_cnn((28, 28), 62)
        told |= {"per_round": per_round or 16, "classes": 62}
    np.savez(folder / "data.npz", x=x, y=y.astype(np.int64))
    np.savez(folder / "init.npz", **{key: value.numpy() for key, value in model.state_dict().items()})
    (folder / "work.json").write_text(json.dumps(told))


def compare(name: str, arguments: argparse.Namespace, interpreter: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="fedgsp-peers-") as made:
        folder = Path(made)
        make_work(name, folder, arguments.per_round)
        told = json.loads((folder / "work.json").read_text())
        entries = {who: entry for who, entry in WORKS[name].items() if not arguments.only or who in (*arguments.only, OURS)}
        running: list[Contestant] = []
        lost: dict[str, str] = {}
        print(f"\n## {name}: {told}\n", flush=True)
        try:
            for who, entry in entries.items():
                turn(lost, running, who, lambda who=who, entry=entry: _begin(who, entry, folder, interpreter, running))
            tiny = told["name"] == "tiny"
            if tiny:  # most of these rounds are far too short to be timed one by one
                for one in [*running]:
                    turn(lost, running, one.name, lambda one=one: _calibrate(one))
            for _ in range(arguments.turns):
                for one in [*running]:
                    turn(lost, running, one.name, lambda one=one: _measure(one))
            if not tiny:
                for one in [*running]:
                    turn(lost, running, one.name, lambda one=one: _judge(one))
            report(name, running, lost)
        finally:
            for one in running:
                one.end()


def _begin(who: str, entry: Entry, folder: Path, interpreter: Path | None, running: list[Contestant]) -> None:
    one = start(who, entry, folder, interpreter)
    running.append(one)
    found = one.answer()
    one.threads, one.note = found["threads"], found["note"]
    one.train(1)
    one.first = time.perf_counter() - one.began
    print(f"  {who}: first round after {one.first:.1f} s ({one.note})", flush=True)


def _calibrate(one: Contestant) -> None:
    cpu, _ = one.train(1)
    _judge(one)
    one.bunch = max(1, min(20, int(np.ceil(LONG_ENOUGH / max(0.01, cpu)))))


def _measure(one: Contestant) -> None:
    cpu, wall = one.train(one.bunch)
    one.cpu.append(cpu / one.bunch)
    one.wall.append(wall / one.bunch)


def _judge(one: Contestant) -> None:
    """All have trained the same number of rounds by now."""
    one.loss = one.ask("loss")["loss"]


def turn(lost: dict[str, str], running: list[Contestant], who: str, act: Any) -> None:
    """Somebody's turn; who cannot go on is out, and the reason is kept."""
    try:
        act()
    except Lost as error:
        lost[who] = str(error)
        print(f"  {who} cannot be run: {error}", flush=True)
        for one in [one for one in running if one.name == who]:
            running.remove(one)
            one.end()


def report(name: str, running: list[Contestant], lost: dict[str, str]) -> None:
    base = next((statistics.median(one.cpu) for one in running if one.name == OURS), float("nan"))
    print(
        "\n| | CPU s a round | of fedgsp's | wall s a round | GB (PSS) | s to the end of round 1 | ms of CPU a step | loss |"
        "\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for one in sorted(running, key=lambda one: statistics.median(one.cpu)):
        cpu, wall = statistics.median(one.cpu), statistics.median(one.wall)
        steps = one.steps / one.rounds
        print(
            f"| {one.name} | {cpu:.3g} ({min(one.cpu):.3g} to {max(one.cpu):.3g}) | {cpu / base:.2f} | {wall:.3g} "
            f"| {one.memory / 1e9:.2f} | {one.first:.1f} | {1000 * cpu / steps:.3g} | {one.loss:.4f} |"
        )
    for who, why in lost.items():
        print(f"| {who} | could not be run: {why} | | | | | | |")
    each = {one.steps / one.rounds for one in running}
    print(f"\nSteps a round: {sorted(each)}{'' if len(each) == 1 else '  <- NOT THE SAME WORK'}; math threads: "
          f"{sorted({one.threads for one in running})}; rounds timed in turns: {[len(one.cpu) for one in running]}; "
          f"load of the machine now: {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip


def setup(folder: Path) -> None:
    """An environment for the peers, made once; what cannot be installed is said and left out."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pins = folder / "pins.txt"
    pins.write_text("\n".join(PINNED) + "\n")
    for packages, alone in INSTALLS:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(pins), *packages]
        done = subprocess.run([*command, *(["--no-deps"] if alone else [])], capture_output=True, text=True)
        first = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "")
        print(f"{', '.join(packages)}: {'installed' if done.returncode == 0 else first or 'failed'}", flush=True)


def versions(interpreter: Path | None) -> str:
    names = sorted({entry.package for entry in FEDAVG.values()} | {"ray", "jax"})
    code = (
        "import importlib.metadata as m, sys\nfor n in sys.argv[1:]:\n    try: print(n, m.version(n))\n"
        "    except m.PackageNotFoundError: print(n, 'not installed')"
    )
    if interpreter is None:
        return "no environment of the peers"
    found = subprocess.run([str(interpreter), "-c", code, *names], capture_output=True, text=True)
    return ", ".join(found.stdout.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", type=Path, help="make the peers' environment in this folder, and nothing else")
    parser.add_argument("--env", type=Path, help="the folder of the peers' environment")
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--only", nargs="+", choices=list(FEDAVG), help="only these, and fedgsp")
    parser.add_argument("--turns", type=int, default=3, help="measured turns of each")
    parser.add_argument("--per-round", type=int, help="clients a round, to try things out")
    arguments = parser.parse_args()
    if arguments.setup:
        setup(arguments.setup)
        return
    interpreter = arguments.env / "bin" / "python" if arguments.env else None
    if interpreter is not None and not interpreter.exists():
        parser.error(f"there is no environment in {arguments.env}; --setup {arguments.env} makes it")
    interpreter = interpreter.absolute() if interpreter else None  # not resolved: it is a link, and where it stands matters
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(versions(interpreter), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no contestant is left behind
    for name in arguments.work:
        compare(name, arguments, interpreter)


if __name__ == "__main__":
    main()
