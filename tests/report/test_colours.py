"""A method has one colour everywhere, and curves that are drawn together are told apart."""

from __future__ import annotations

import re
from importlib import resources

from fedgsp.report.colours import METHODS, TONES, Look, looks


def test_a_method_has_its_colour_whoever_is_beside_it() -> None:
    assert looks(["FedAvg", "mine", "fedgsp"]) == [Look("blue"), Look("orange"), Look("red")]
    assert looks(["fedgsp", "FedAvg"]) == [Look("red"), Look("blue")]
    assert looks(["Naive GSP ICG"])[0].colour == "#009E73"
    assert looks(["fedavg", "mine", "fedprox"])[2:] == looks(["fedprox"]) == [Look("blue", 1)]


def test_no_two_curves_look_the_same() -> None:
    many = looks(["fedavg", "fedavg", "fedgsp", *(f"other {k}" for k in range(28))])
    assert len(set(many)) == 31
    assert many[0] == Look("blue")
    assert many[1] != Look("blue")
    assert max(look.dash for look in many) == 3


def test_the_page_has_every_tone() -> None:
    style = (resources.files("fedgsp.report") / "page" / "style.css").read_text()
    for tone in TONES:
        assert len(re.findall(rf"--{tone}: #", style)) == 3, tone  # light, dark by the system, dark by choice
    assert {look.tone for look in METHODS.values()} <= set(TONES)
