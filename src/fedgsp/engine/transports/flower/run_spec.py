"""What every message says of the run it belongs to, and what a site makes of that before it does anything."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from fedgsp.core.tensors import FULL, Wire
from fedgsp.engine.transports.flower.noise_demand import check_noise
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.site import Site

RUN = re.compile(r"[0-9a-f]{16}")
BASE = re.compile(r"([0-9a-f]{64})?")


@dataclass(frozen=True)
class RunSpec:
    """A run as its clients must know it.

    `rule` is the local rule as plain data (`fedgsp.parts`), `model` the model's name, `classes` and `shape` what the
    federation's samples are; `kernel` and `layers` say how steps are made, the same everywhere or the bits would differ.
    `base` is the digest of the parameters that are frozen, which do not travel ("": all are trained).
    `validation` and `data_seed` carve a validation part out of a client's training samples, as a local run does.
    """

    run: str
    seed: int
    rule: dict[str, Any]
    model: str
    classes: int | None = None
    shape: tuple[int, ...] | None = None
    kernel: str = "plain"
    layers: tuple[str, ...] = ()
    wire: Wire = FULL
    device: str = "cpu"
    validation: float = 0.0
    data_seed: int = 0
    base: str = ""

    def encode(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def decode(cls, table: Any) -> RunSpec:
        """From what was sent, checked: a site believes nothing."""
        if not isinstance(table, dict) or table.keys() != {field.name for field in fields(cls)}:
            raise Refused("the message does not describe its run")
        wanted: dict[str, tuple[type, ...]] = {
            "run": (str,), "seed": (int,), "rule": (dict,), "model": (str,), "classes": (int, type(None)),
            "shape": (list, tuple, type(None)), "kernel": (str,), "layers": (list, tuple), "wire": (str,), "device": (str,),
            "validation": (float, int), "data_seed": (int,), "base": (str,),
        }  # fmt: skip
        for name, kinds in wanted.items():
            if not isinstance(table[name], kinds):
                raise Refused(f"the message's '{name}' is not what it must be")
        if not RUN.fullmatch(table["run"]):
            raise Refused("the message's run has no proper name")
        if table["wire"] not in ("float32", "float16", "bfloat16"):
            raise Refused(f"the wire '{table['wire']}' is unknown")
        if not BASE.fullmatch(table["base"]):
            raise Refused("the message's base is not a digest")
        if not 0 <= table["validation"] < 1:
            raise Refused("the message's validation is not a share")
        shape = table["shape"]
        return cls(**{**table, "shape": None if shape is None else tuple(shape), "layers": tuple(table["layers"])})

    def check_allowed(self, site: Site) -> None:
        """Refuse a rule, or a part of one, or a model that the site does not allow: those of others are code to be imported.

        And a rule that adds less noise than the site demands.
        """
        kind, allowed = self.rule.get("kind"), built_in_rules() if site.methods is None else site.methods
        if kind not in allowed:
            raise Refused(f"the site '{site.name}' does not allow the local rule '{kind}'", for_good=True)
        for inner in kinds_in(self.rule):
            if ":" in inner and inner not in allowed:
                raise Refused(f"the site '{site.name}' does not allow the part '{inner}'", for_good=True)
        if self.model not in site.models:
            raise Refused(f"the site '{site.name}' does not allow the model '{self.model}'", for_good=True)
        check_noise(site, self.rule)


def built_in_rules() -> tuple[str, ...]:
    """The local rules that a site allows unless it says otherwise."""
    from fedgsp.parts import kinds  # here, since most messages need none of it

    return tuple(kind for kind, cls in kinds("local").items() if cls.allowed_at_sites)


def kinds_in(table: dict[str, Any]) -> list[str]:
    """The kinds of a part and of the parts in it."""
    found = [str(table["kind"])] if "kind" in table else []
    for value in table.values():
        if isinstance(value, dict):
            found += kinds_in(value)
    return found
