"""Which methods the studies have in their rows, and what the paper says of its own."""

from __future__ import annotations

RIVALS = ("fedprox", "fedmmd", "fedfusion", "ida", "fedadagrad", "fedadam", "fedyogi")
PAPER: dict[str, tuple[float, float, int | None]] = {
    "fedavg": (0.801, 0.602, 470), "fedprox": (0.787, 0.633, None), "fedmmd": (0.817, 0.587, 336),
    "fedfusion": (0.824, 0.554, 230), "ida": (0.820, 0.567, 256), "fedadagrad": (0.819, 0.582, 297),
    "fedadam": (0.821, 0.566, 87), "fedyogi": (0.832, 0.543, 93), "fedgsp": (0.854, 0.453, 34),
}  # fmt: skip
"""The paper's Table 1: accuracy, loss, rounds to 80 %."""
PAPER_TARGET, PAPER_END, PAPER_CLIENTS, PAPER_KAPPA = 0.8, 500, 368, 0.3
"""The accuracy that its rounds are to, the rounds after which it has the others, and the clients and kappa of all."""
FIXED, SHUFFLED = "NaiveGSP+ICG, fixed order", "NaiveGSP+ICG, shuffled"
CURVES = ("FedAvg", "NaiveGSP", FIXED, SHUFFLED, "FedGSP")
"""The methods of the curves, by the paper's names."""
REPAIRED = ("fedadam+warm", "fedyogi+warm")
"""The adaptive servers with a plain mean in round 1, beside the printed ones."""
OURS = ("fedgsp-capped", "chains-then-adam", "long-chains-then-adam")
GRID = ("lr=0.01,0.03,0.1",)
"""What ours, and FedGSP beside them, are tuned over."""
LONG = (
    "fedavg", "fedprox", "fedmmd", "fedfusion", "ida", "fedadagrad", "fedadam", "fedyogi", *REPAIRED, "naive-gsp", "fedgsp",
    "fedgsp-capped", "chains-then-adam", "long-chains-then-adam",
)  # fmt: skip
"""The rows of the table of longer runs, where all are there."""
