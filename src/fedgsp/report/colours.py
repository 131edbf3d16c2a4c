"""One colour for a method, in every picture and on every page. The colours are told apart with all kinds of colour vision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TONES = {
    "blue": "#0072B2", "orange": "#E69F00", "green": "#009E73", "red": "#D55E00", "purple": "#CC79A7", "sky": "#56B4E9",
    "ink": "#000000", "brown": "#8C6D00", "grey": "#7F7F7F",
    "violet": "#5E3C99",
}  # fmt: skip
"""Names, as the page's style sheet has them, and what they are on white paper."""

METHODS = {
    "fedavg": "blue", "naive-gsp": "orange", "naive-gsp-icg": "green", "fedgsp": "red", "fedadam": "purple",
    "fedgsp-capped": "ink", "chains-then-adam": "sky", "fedyogi": "brown", "fedadagrad": "grey",
    "long-chains-then-adam": "violet",
}  # fmt: skip
DASHES = 4
"""Kinds of lines; the second and later curves of one colour are dashed."""


@dataclass(frozen=True)
class Look:
    """How a curve is drawn: a tone, its colour, and which kind of dashes (0: none)."""

    tone: str
    dash: int = 0

    @property
    def colour(self) -> str:
        """For pictures."""
        return TONES[self.tone]


def looks(labels: Sequence[str]) -> list[Look]:
    """Colours for curves that are drawn together: methods of the table have theirs, the others those that are left.

    Args:
        labels: What the curves are called: methods, in any spelling of theirs.

    Returns:
        A look for each label, no two the same as long as there are enough.
    """
    names = [METHODS.get("-".join(label.lower().split())) for label in labels]
    taken = [name if name is not None and name not in names[:at] else None for at, name in enumerate(names)]
    left = [tone for tone in TONES if tone not in taken]
    every = [Look(tone, dash) for dash in range(DASHES) for tone in (left if dash == 0 else TONES)]
    others = iter(every * (1 + len(labels) // len(every)))
    return [next(others) if tone is None else Look(tone) for tone in taken]
