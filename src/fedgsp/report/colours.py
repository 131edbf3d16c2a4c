"""One colour for a method, in every picture and on every page. The colours are told apart with all kinds of colour vision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TONES = {
    "blue": "#0072B2", "orange": "#E69F00", "green": "#009E73", "red": "#D55E00", "purple": "#CC79A7", "sky": "#56B4E9",
    "ink": "#000000", "brown": "#8C6D00", "grey": "#7F7F7F",
    "violet": "#5E3C99",
}  # fmt: skip
"""Names, as the page's style sheet has them, and what they are on white paper."""

MARKERS = ("o", "s", "^", "D")
"""Kinds of points; what shares a colour with another differs in them, or in dashes."""


@dataclass(frozen=True)
class Look:
    """How a curve is drawn: a tone, its colour, and which kind of dashes (0: none)."""

    tone: str
    dash: int = 0

    @property
    def colour(self) -> str:
        """For pictures."""
        return TONES[self.tone]


METHODS: Mapping[str, Look] = {
    "fedavg": Look("blue"), "naive-gsp": Look("orange"), "naive-gsp-icg": Look("green"), "fedgsp": Look("red"),
    "fedadam": Look("purple"), "fedyogi": Look("brown"), "fedadagrad": Look("grey"), "fedgsp-capped": Look("ink"),
    "chains-then-adam": Look("sky"), "long-chains-then-adam": Look("violet"), "fedprox": Look("blue", 1),
    "fedmmd": Look("green", 1), "fedfusion": Look("orange", 1), "ida": Look("red", 1), "fedadam+warm": Look("purple", 1),
    "fedyogi+warm": Look("brown", 1),
    "naivegsp": Look("orange"), "naivegsp+icg,-shuffled": Look("green"), "naivegsp+icg,-fixed-order": Look("green", 2),
}  # fmt: skip
"""By the methods' names, and by the paper's names of some."""


def known_look(label: str) -> Look | None:
    """The look of a method, in any spelling of its name; None for anything else."""
    return METHODS.get("-".join(label.lower().split()))


def looks(labels: Sequence[str]) -> list[Look]:
    """Colours for curves that are drawn together: methods of the table have theirs, the others those that are left.

    Args:
        labels: What the curves are called: methods, in any spelling of theirs.

    Returns:
        A look for each label, no two the same as long as there are enough.
    """
    names = [known_look(label) for label in labels]
    taken = [name if name is not None and name not in names[:at] else None for at, name in enumerate(names)]
    plain = {look.tone for look in taken if look is not None and look.dash == 0}
    every = [Look(tone, dash) for dash in range(len(MARKERS)) for tone in TONES if dash or tone not in plain]
    every = [look for look in every if look not in taken]
    others = iter(every * (1 + len(labels) // len(every)))
    return [next(others) if look is None else look for look in taken]
