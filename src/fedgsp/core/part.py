"""What every part of a method says of itself: its class is the one place where that stands."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

Values = tuple[float, ...]


class Part(ABC):  # noqa: B024 - what it is a base of has abstract methods
    """A part of a method: a frozen dataclass whose fields are the parameters that a config file spells.

    Attributes:
        kind: The word it goes by in config files. A class of your own needs none: it goes by `package.module:Class`.
        tuned_over: The values that a study tries, by parameter. A name with a dot is another part's: `local.lr`.
        allowed_at_sites: Whether a site of a deployment runs it unless its settings say otherwise; for built-in parts only.
        variants: Names for sets of parameters: kind "ida" and variant "fedavg" are the word `ida-fedavg` in a method's name.
    """

    kind: ClassVar[str] = ""
    tuned_over: ClassVar[Mapping[str, Values]] = {}
    allowed_at_sites: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def summary(cls) -> str:
        """The first line of its docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]
