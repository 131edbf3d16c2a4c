"""Verdicts on what a method took against another, and the sentences that the results begin with."""

from __future__ import annotations

from typing import Any

from fedgsp.cost import FLEETS
from fedgsp.study.paper.first_screen import first_screen
from fedgsp.study.paper.shares import HOLDS, MORE_ROUNDS, NOT_ALL, TOO_FEW, compared


def costs(rounds: list[float], steps: list[float], size: list[float]) -> dict[int, dict[str, float] | None]:
    return {
        seed: {"rounds": r, "serial_steps": s, "bytes": b}
        for seed, (r, s, b) in enumerate(zip(rounds, steps, size, strict=True))
    }


THEIRS = costs([20, 21, 20, 19, 20], [200, 210, 205, 190, 200], [100, 105, 102, 98, 100])


def verdict(ours: dict[int, dict[str, float] | None]) -> str:
    (share,) = compared({"ours": ours, "theirs": THEIRS}, ["ours"], ["theirs"])
    return share.verdict


def test_it_holds_only_if_all_of_it_is_more_than_noise() -> None:
    fewer = [50.0, 52.0, 51.0, 49.0, 50.0]
    assert verdict(costs([20, 20, 21, 19, 20], [100, 104, 102, 98, 99], fewer)) == HOLDS
    assert verdict(costs([30, 31, 30, 29, 30], [100, 104, 102, 98, 99], fewer)) == MORE_ROUNDS
    assert verdict(costs([20, 20, 21, 19, 20], [150, 260, 205, 230, 160], fewer)) == "fewer bytes only"
    assert verdict(costs([20, 20, 21, 19, 20], [150, 260, 205, 230, 160], [80, 130, 90, 120, 100])) == NOT_ALL


def test_a_seed_that_never_arrived_is_not_left_out_without_a_word() -> None:
    ours = costs([10, 10, 10, 10, 10], [50, 50, 51, 50, 50], [20, 20, 20, 21, 20])
    ours[4] = None
    (share,) = compared({"ours": ours, "theirs": THEIRS}, ["ours"], ["theirs"])
    assert share.verdict == TOO_FEW
    assert share.cells()[2] == "4 of 5"


def test_many_comparisons_are_corrected() -> None:
    """A gain of 2 % that is clear by itself is not among twenty."""
    ours = costs([20, 21, 20, 19, 20], [195, 208, 199, 187, 197], [98, 103, 100, 96, 98])
    (alone,) = compared({"ours": ours, "theirs": THEIRS}, ["ours"], ["theirs"])
    assert alone.ratios["serial_steps"][1]
    names = [f"rival {at}" for at in range(20)]
    many = compared({"ours": ours, **dict.fromkeys(names, THEIRS)}, ["ours"], names)
    assert not any(share.ratios["serial_steps"][1] for share in many)


def test_more_rounds_count_against_it_without_the_correction() -> None:
    """Some 10 % more rounds are clear by themselves; among many comparisons they would not be, to its advantage."""
    ours = costs([21, 24, 22, 20, 23], [100, 104, 102, 98, 99], [50, 52, 51, 49, 50])
    names = [f"rival {at}" for at in range(20)]
    many = compared({"ours": ours, **dict.fromkeys(names, THEIRS)}, ["ours"], names)
    assert not any(share.ratios["rounds"][1] for share in many)
    assert all(share.ratios["bytes"][1] for share in many)
    assert {share.verdict for share in many} == {MORE_ROUNDS}


def reached(rounds: float, size: float, **seconds: float) -> list[dict[str, Any]]:
    return [{"rounds": rounds, "serial_steps": 1, "bytes": size, "seconds": dict.fromkeys(FLEETS, 5.0) | seconds}]


def test_the_first_screen_says_who_is_soonest_and_cheapest() -> None:
    facts = {
        "model": "small_cnn", "seeds": 3, "target": 0.78, "front": {fleet: ["fedgsp"] for fleet in FLEETS},
        "reached": {"fedavg": reached(50, 5e8), "fedgsp": reached(8, 8e7, paper=1.0, **{"phone-4g": 9.0}), "ida": [None]},
    }  # fmt: skip
    text = "\n".join(first_screen({"fleets": {"facts": facts}}))
    assert "78 % in 8 rounds and 80 MB, tuned FedAvg in 50 and 500 MB. In time: 1.0 s against 5.0 on paper" in text
    assert "wait for each other: 9.0 s against 5.0 on phone-4g" in text
    assert "| paper | fedgsp | 1.0 | 1.0 | 5.0 | fedgsp, 80 MB | fedgsp |" in text
    assert "ida" not in text
    assert first_screen({}) == []
