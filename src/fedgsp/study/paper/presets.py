"""How large a study is: the paper's own settings, what a laptop can do of them, and a smoke test of everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.study.paper.dealing import SKEWS
from fedgsp.study.paper.rows import CURVES, LONG
from fedgsp.study.records import Arm


@dataclass(frozen=True)
class Preset:
    """The settings of every study.

    `target` is the accuracy that "rounds to target" is about; None is the scaled target: the whole per cent that FedAvg has at
    its end (the paper's 80 % is just that of its FedAvg, 80.1 %). `log_alphas` are the growth study's rates for Log; Linear and
    Exp get rates with which as many groups are there in the last round, so that only the way there differs. `tune_seeds` and
    `tune_beyond` are the seeds of a tuning that widens its grid, and how many values it may add to an axis. `holdout` is the
    share of clients that never train where a study evaluates unseen clients. `skew_whole` are the numbers of clients with which
    `study skew` has all its rows; `skew_kappa` is the share of groups that train in a round there: less than elsewhere, since
    accuracy hardly depends on it (`study kappa`) and computing does. `table_long` is the longer series of the table's
    methods, NaiveGSP and ours, tuned. `ours_large` and `ours_large_skew` are runs of `study ours` with a larger model, for
    which nothing is tuned, on the data's own clients and on those of `ours_skew`. `advice_skew` says whether `study advice`
    looks at these runs, too. What begins with `attack` is about the robustness study.
    """

    name: str
    data: str
    curves: tuple[Arm, ...]
    growth: Arm
    kappa: Arm
    table: Arm
    table_long: Arm | None
    rivals: Arm
    cost: Arm
    ours: Arm
    skew: Arm
    few: Arm
    adaptive: Arm
    ablation: Arm
    attacked_sites: Arm
    attacked_chains: Arm
    attacked_clients: Arm
    tune_rounds: int
    log_alphas: tuple[float, ...]
    betas: tuple[int, ...]
    tune_seeds: int = 1
    tune_beyond: int = 3
    target: float | None = None
    grid: tuple[str, ...] | None = None
    lr: float = 0.01
    batch_size: int = 5
    beta: int = 10
    kappa_default: float = 0.3
    kappas: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5, 1.0)
    group_counts: tuple[int, ...] = (10, 30, 52)
    holdout: float = 0.1
    ours_targets: tuple[float, ...] = (0.8, 0.78, 0.75, 0.82)
    ours_large: Arm | None = None
    ours_large_skew: Arm | None = None
    ours_large_targets: tuple[float, ...] = (0.8, 0.75, 0.7, 0.6)
    ours_skew: str | None = "Dirichlet(0.1)"
    ours_skew_targets: tuple[float, ...] = (0.75, 0.7, 0.65)
    skews: tuple[str, ...] = tuple(SKEWS)
    skew_clients: tuple[int, ...] = (40, 100, 368)
    skew_whole: tuple[int, ...] = (100,)
    skew_kappa: float = 0.1
    advice_skew: bool = True
    few_skews: tuple[str, ...] = ("Dirichlet(1)", "Dirichlet(0.1)")
    few_clients: tuple[int, ...] = (15, 40, 100)
    attack_sites: int = 20
    attack_shares: tuple[float, ...] = (0.0, 0.2, 0.4, 0.1, 0.3)
    attack_chain_shares: tuple[float, ...] = (0.0, 0.2, 0.4, 0.1, 0.3)
    attacks: tuple[str, ...] = ("sign-flip", "scaled", "gaussian", "inner-product", "label-flip")
    attack_rules: tuple[str, ...] = ()
    chain_lengths: tuple[int, ...] = (1, 2, 8, 4)
    attacked_tune_rounds: int = 2
    attacked_lr: float = 0.03
    attacked_lr_alone: float = 0.1
    attacked_kappa: float = 0.1
    workers: int | str = "auto"


FEMNIST = "npz:../shared/femnist/femnist.npz:federation=femnist-368"

PRESETS: Mapping[str, Preset] = {
    "paper": Preset(
        name="paper", data=FEMNIST, curves=(Arm("leaf_cnn", 500, 1),), growth=Arm("leaf_cnn", 500, 1),
        kappa=Arm("leaf_cnn", 500, 1), table=Arm("leaf_cnn", 500, 1), table_long=Arm("small_cnn", 500, 3, only=LONG),
        rivals=Arm("leaf_cnn", 500, 1), cost=Arm("leaf_cnn", 500, 1), ours=Arm("leaf_cnn", 500, 2, 3),
        skew=Arm("leaf_cnn", 100, 1), few=Arm("leaf_cnn", 50, 1), adaptive=Arm("leaf_cnn", 100, 1), tune_rounds=50,
        ablation=Arm("leaf_cnn", 100, 1),
        attacked_sites=Arm("leaf_cnn", 50, 3), attacked_chains=Arm("leaf_cnn", 100, 1),
        attacked_clients=Arm("leaf_cnn", 200, 1),
        log_alphas=(0.5, 1.0, 2.0, 4.0, 8.0), betas=(2, 5, 10, 20, 40), target=0.8,
    ),
    "laptop": Preset(
        name="laptop", data=FEMNIST,
        curves=(
            Arm("leaf_cnn", 100, 1), Arm("small_cnn", 100, 3), Arm("small_cnn", 500, 1, only=CURVES),
            Arm("leaf_cnn", 250, 1, only=("FedAvg", "FedGSP")),
        ),
        table_long=Arm("small_cnn", 500, 1, only=LONG),
        ours_large=Arm("leaf_cnn", 20, 2, 3, only=("fedgsp", "fedgsp@kappa=0.1", "fedgsp-capped", "fedgsp-capped@kappa=0.1",
                                                   "chains-then-adam", "long-chains-then-adam")),
        ours_large_skew=Arm("leaf_cnn", 20, 2, 3, only=("fedgsp", "fedgsp-capped", "long-chains-then-adam")),
        growth=Arm("small_cnn", 40, 1), kappa=Arm("small_cnn", 60, 3), table=Arm("small_cnn", 60, 3),
        rivals=Arm("small_cnn", 30, 3), cost=Arm("small_cnn", 100, 3), ours=Arm("small_cnn", 20, 5, 3),
        skew=Arm("small_cnn", 20, 1), few=Arm("small_cnn", 12, 1), adaptive=Arm("small_cnn", 20, 3), tune_rounds=15,
        ablation=Arm("small_cnn", 20, 3),
        tune_seeds=3,
        log_alphas=(0.5, 1.0, 2.0, 4.0), betas=(5, 10, 20),
        attacked_sites=Arm("small_cnn", 4, 3), attacked_chains=Arm("small_cnn", 5, 1), attacked_clients=Arm("small_cnn", 15, 1),
    ),
    "smoke": Preset(
        name="smoke", data="glyphs:clients=20", curves=(Arm("small_cnn", 6, 2),), growth=Arm("small_cnn", 4, 1),
        kappa=Arm("small_cnn", 4, 1), table=Arm("small_cnn", 6, 1),
        table_long=Arm("small_cnn", 8, 1, only=("fedavg", "naive-gsp", "fedgsp", "chains-then-adam")),
        rivals=Arm("small_cnn", 4, 1), cost=Arm("small_cnn", 6, 2), ours=Arm("small_cnn", 4, 2, 3),
        skew=Arm("small_cnn", 2, 1), few=Arm("small_cnn", 2, 1), adaptive=Arm("small_cnn", 2, 1), tune_rounds=2,
        ablation=Arm("small_cnn", 2, 1),
        attacked_sites=Arm("small_cnn", 1, 1), attacked_chains=Arm("small_cnn", 2, 1), attacked_clients=Arm("small_cnn", 2, 1),
        attack_sites=10, attack_shares=(0.0, 0.2), attack_chain_shares=(0.0, 0.2), attacks=("sign-flip",),
        chain_lengths=(2,), attacked_tune_rounds=1, attack_rules=("mean", "median"),
        log_alphas=(1.0, 2.0), betas=(2, 4), grid=("lr=0.01,0.1",), tune_beyond=1, lr=0.03,
        batch_size=10, beta=4, group_counts=(4, 6),
        holdout=0.15, workers=0, ours_targets=(0.1, 0.9), ours_skew_targets=(0.1,),
        ours_large=Arm("small_cnn", 3, 1, 3, only=("fedgsp", "fedgsp-capped")), ours_large_targets=(0.1,),
        ours_large_skew=Arm("small_cnn", 3, 1, 3, only=("fedgsp", "fedgsp-capped")),
        skews=("own clients", "Dirichlet(0.1)"), skew_clients=(10,),
        skew_whole=(10,), few_skews=("Dirichlet(1)",), few_clients=(6,),
    ),
}  # fmt: skip
"""`paper`: 368 clients, leaf_cnn, batches of 5, learning rate 0.01, 500 rounds, kappa 0.3."""


ARMS = (
    "growth", "kappa", "table", "rivals", "cost", "ours", "skew", "few", "adaptive", "ablation",
    "attacked_sites", "attacked_chains", "attacked_clients",
)  # fmt: skip


def with_model(preset: Preset, model: str) -> Preset:
    """The preset with one model in every study; of the curves only those that are about it, if there are such."""
    curves = tuple(arm for arm in preset.curves if arm.model == model) or (replace(preset.curves[0], model=model),)
    long = None if preset.table_long is None else replace(preset.table_long, model=model)
    arms = {name: replace(getattr(preset, name), model=model) for name in ARMS}
    return replace(preset, curves=curves, table_long=long, ours_large=None, ours_large_skew=None, **arms)


def with_rounds(preset: Preset, rounds: int) -> Preset:
    """The preset with so many rounds in every run that is measured, and no more than that for tuning; the target is scaled.

    Series that are there for their length are left out.
    """
    if rounds < 2:
        raise InputError(f"a study needs at least 2 rounds, not {rounds}.")
    curves = tuple(replace(arm, rounds=rounds) for arm in preset.curves if not arm.only)
    arms = {name: replace(getattr(preset, name), rounds=rounds) for name in ARMS}
    tuning = min(rounds, preset.tune_rounds)
    return replace(
        preset, curves=curves, table_long=None, ours_large=None, ours_large_skew=None, tune_rounds=tuning, target=None, **arms
    )


def preset_named(name: str) -> Preset:
    """A preset."""
    if name not in PRESETS:
        raise InputError(f"unknown preset '{name}': {did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def asked_preset(name: str, model: str | None = None, rounds: int | None = None) -> Preset:
    """A preset with the model and the rounds that are asked for, if any."""
    preset = preset_named(name) if model is None else with_model(preset_named(name), model)
    return preset if rounds is None else with_rounds(preset, rounds)
