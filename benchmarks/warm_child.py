"""Two ways for a node to call its app apart from itself: a child that stays, or a fork of a warm process for every message.

    OMP_NUM_THREADS=1 python benchmarks/warm_child.py

Both have everything imported before the first message. A message is a model that goes to the child, is trained on a client of
glyphs for one epoch, and comes back, over the frames of `fedgsp node`. Wall and CPU seconds a message, medians; and what it
takes after a child's death until the next one can answer.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch

from fedgsp.core.imports import python
from fedgsp.data import load
from fedgsp.deploy.node import frames
from fedgsp.deploy.node.app_process import _warmed
from fedgsp.models import resolve

MESSAGES = 12


def trained(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, blob: bytes) -> bytes:
    """The model's bytes after an epoch of plain steps."""
    vector = torch.frombuffer(bytearray(blob), dtype=torch.float32)
    torch.nn.utils.vector_to_parameters(vector, model.parameters())
    for begin in range(0, len(x), 5):
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x[begin : begin + 5]), y[begin : begin + 5]).backward()
        with torch.no_grad():
            for one in model.parameters():
                if one.grad is not None:
                    one -= 0.01 * one.grad
    return bytes(torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().data)


def serve(link: socket.socket, answer: Callable[[bytes], bytes], messages: int) -> None:
    """Answer so many messages."""
    for _ in range(messages):
        _, blobs = frames.receive(link)
        frames.send(link, {}, [answer(blobs[0])])


def child(answer: Callable[[bytes], bytes], messages: int) -> tuple[int, socket.socket]:
    """A fork of this process that answers so many messages and ends."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            serve(theirs, answer, messages)
        finally:
            os._exit(0)
    theirs.close()
    return pid, ours


def cpu() -> float:
    """Seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def asked(link: socket.socket, blob: bytes) -> None:
    """One message there and back."""
    frames.send(link, {}, [blob])
    frames.receive(link)


def staying(answer: Callable[[bytes], bytes], blob: bytes) -> tuple[float, float]:
    """Seconds of wall and CPU a message with one child for all."""
    pid, link = child(answer, MESSAGES + 1)
    asked(link, blob)
    begun, walls = cpu(), []
    for _ in range(MESSAGES):
        start = time.perf_counter()
        asked(link, blob)
        walls.append(time.perf_counter() - start)
    os.waitpid(pid, 0)
    return statistics.median(walls), (cpu() - begun) / (MESSAGES + 1)


def forking(answer: Callable[[bytes], bytes], blob: bytes) -> tuple[float, float]:
    """The same with a fork for each."""
    begun, walls = cpu(), []
    for _ in range(MESSAGES):
        start = time.perf_counter()
        pid, link = child(answer, 1)
        asked(link, blob)
        walls.append(time.perf_counter() - start)
        link.close()
        os.waitpid(pid, 0)
    return statistics.median(walls), (cpu() - begun) / MESSAGES


def main() -> None:
    _warmed()
    data: Any = load("glyphs:clients=4")
    rows = data.train[0]
    x, y = torch.as_tensor(data.features[rows]).float() / data.divisor, torch.as_tensor(data.labels[rows]).long()
    print("| model | a message by | wall s | CPU s |\n| --- | --- | --- | --- |")
    for name in ("small_cnn", "leaf_cnn"):
        model = resolve(name, data.features.shape[1:], data.classes).build()
        blob = bytes(torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().data)
        answer = lambda given, model=model: trained(model, x, y, given)  # noqa: E731
        for words, way in (("a child that stays", staying), ("a fork", forking)):
            wall, used = way(answer, blob)
            print(f"| {name} | {words} | {wall:.4f} | {used:.4f} |", flush=True)
    start = time.perf_counter()
    subprocess.run([*python("fedgsp.deploy.node.app_process", "_warmed()")], check=True)
    print(f"another child after a death: {time.perf_counter() - start:.2f} s; another fork: in the figures above")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
