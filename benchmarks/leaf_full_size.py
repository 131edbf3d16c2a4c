"""A synthetic LEAF FEMNIST of the full size, converted: memory, time, a kill in the middle, and the second start.

    python benchmarks/leaf_full_size.py --folder /tmp/leaf-full            # about 5 GB of JSON; removed at the end
    python benchmarks/leaf_full_size.py --folder /tmp/leaf-full --keep     # to look at it afterwards

The writers have the two kinds of class frequencies and the sizes of the real ones; the images are scribbles with as many
grey pixels as real ones, so that the JSON is as long as LEAF's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

WRITERS, IMAGES, A_SHARD = 3550, 800_000, 100
TEXT_FREQUENCIES = (
    "35.7 40.3 28.8 35.5 28.6 31.7 31.7 37.4 30.4 33.6 13.4 4.6 22.0 8.8 8.2 21.4 1.9 4.2 22.0 5.5 1.9 "
    "10.3 19.3 13.0 52.7 17.2 3.4 9.2 45.8 20.2 33.0 8.0 7.8 2.7 7.8 2.3 23.3 7.6 2.5 21.2 53.7 2.1 "
    "5.7 16.6 2.5 2.7 1.3 30.9 2.3 26.9 1.5 2.9 3.6 33.0 2.7 41.8 2.3 3.6 2.9 2.3 2.1 1.9"
)


def writer_counts(rng: np.random.Generator, writers: int) -> np.ndarray[Any, Any]:
    """(writers, 62) class counts: 42 % write a text, 58 % mostly digits, as in LEAF's files."""
    text = np.array([float(value) for value in TEXT_FREQUENCIES.split()])
    rows = []
    for _ in range(writers):
        if rng.random() < 0.42:
            rows.append(rng.multinomial(max(9, int(rng.normal(308, 81))), text / text.sum()))
        else:
            digits = np.maximum(0, np.rint(rng.normal(11.9, 3, 10))).astype(np.int64)
            rows.append(np.concatenate([digits, rng.binomial(1, 0.88, 52)]))
    return np.array(rows)


def scribbles(rng: np.random.Generator, count: int) -> list[str]:
    """JSON texts of images, without their first three pixels: those make every image of the set another one."""
    texts = []
    for _ in range(count):
        image = np.full((28, 28), 255)
        y, x = rng.uniform(8, 20, 2)
        for _ in range(26):
            y, x = np.clip([y + rng.normal(0, 1.6), x + rng.normal(0, 1.6)], 4, 23)
            at = slice(int(y) - 1, int(y) + 2), slice(int(x) - 1, int(x) + 2)
            image[at] = np.minimum(image[at], rng.integers(0, 255, (3, 3)))
        texts.append(", ".join(map(repr, (image.reshape(-1)[3:] / 255).tolist())))
    return texts


def make(folder: Path, writers: int, images: int) -> None:
    """Write the set."""
    rng = np.random.default_rng(0)
    counts = writer_counts(rng, writers)
    while (more := images - int(counts.sum())) != 0:  # to the very number, by adding to or taking from random cells
        cells = np.flatnonzero(counts > 1)
        counts.flat[rng.choice(cells, min(abs(more), len(cells)), replace=False)] += 1 if more > 0 else -1
    pool = scribbles(rng, 3000)
    number = 0
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
    for begin in range(0, writers, A_SHARD):
        chosen = range(begin, min(begin + A_SHARD, writers))
        labels = [rng.permutation(np.repeat(np.arange(62), counts[k])) for k in chosen]
        for part in ("train", "test"):
            cut = [max(1, int(0.9 * len(some))) for some in labels]
            mine = [some[:c] if part == "train" else some[c:] for some, c in zip(labels, cut, strict=True)]
            names = [f"f{k:04d}_{k % 100:02d}" for k in chosen]
            with (folder / part / f"all_data_{begin // A_SHARD}_niid_0_keep_0_{part}_9.json").open("w") as file:
                file.write(json.dumps({"users": names, "num_samples": [len(some) for some in mine]})[:-1] + ', "user_data": {')
                for place, (name, some) in enumerate(zip(names, mine, strict=True)):
                    rows = []
                    for _ in some:
                        first = [number >> 16 & 255, number >> 8 & 255, number & 255]
                        rows.append(f"[{', '.join(repr(v / 255) for v in first)}, {pool[number % len(pool)]}]")
                        number += 1
                    body = f'{{"x": [{", ".join(rows)}], "y": {json.dumps(some.tolist())}}}'
                    file.write(f'{", " if place else ""}"{name}": {body}')
                file.write("}}")


def prepare(folder: Path, kill_after: float | None = None) -> tuple[float, int, str]:
    """(seconds, peak bytes, what it said) of `fedgsp data prepare` in a process of its own, killed if so told."""
    script = (
        "import resource, sys\nfrom fedgsp.cli.main import main\ntry:\n    main()\nfinally:\n"
        "    print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)"
    )
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", script, "data", "prepare", f"leaf:{folder}"], stdout=subprocess.PIPE, text=True
    )
    if kill_after is not None:
        time.sleep(kill_after)
        child.send_signal(signal.SIGKILL)
    said, _ = child.communicate()
    peak = next((int(line.split()[1]) for line in said.splitlines() if line.startswith("peak")), 0)
    return time.monotonic() - began, peak, said.splitlines()[0] if said else "(killed)"


def first_line(folder: Path) -> float:
    """Seconds until `fedgsp run` says that it starts training."""
    began = time.monotonic()
    command = [sys.executable, "-c", "from fedgsp.cli.main import main; main()", "run", "--data", f"leaf:{folder}"]
    child = subprocess.Popen(
        [*command, "--rounds", "1", "--out", str(folder.parent / "run")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    seconds = time.monotonic() - began
    child.kill()
    child.communicate()
    return seconds


def main() -> None:
    """Make, convert, kill, convert again, start twice; print figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--writers", type=int, default=WRITERS)
    options.add_argument("--images", type=int, default=IMAGES)
    options.add_argument("--keep", action="store_true")
    chosen = options.parse_args()
    folder, cache = chosen.folder / "leaf", chosen.folder / "cache"
    os.environ["FEDGSP_CACHE"] = str(cache)
    began = time.monotonic()
    if not folder.exists():
        make(folder, chosen.writers, chosen.images)
    total = sum(file.stat().st_size for file in folder.rglob("*.json"))
    print(
        f"made {chosen.writers} writers, {chosen.images} images, {total / 1e9:.2f} GB of JSON "
        f"in {time.monotonic() - began:.0f} s"
    )
    seconds, peak, said = prepare(folder)
    print(f"converted in {seconds:.0f} s, peak {peak / 2**30:.2f} GiB: {said}")
    shutil.rmtree(cache)
    killed, _, _ = prepare(folder, kill_after=0.5 * seconds)
    again, peak_again, said_again = prepare(folder)
    same = said.split(", ready")[0] == said_again.split(", ready")[0]
    print(f"killed after {killed:.0f} s, restarted: done in {again:.0f} s, peak {peak_again / 2**30:.2f} GiB, same: {same}")
    seconds, peak, _ = prepare(folder)
    print(f"prepared a second time in {seconds:.1f} s, peak {peak / 2**30:.2f} GiB")
    print(f"`fedgsp run` starts training after {first_line(folder):.1f} s")
    size = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    print(f"cache {size / 1e9:.2f} GB")
    if not chosen.keep:
        shutil.rmtree(chosen.folder)


if __name__ == "__main__":
    main()
