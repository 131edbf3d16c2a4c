"""A site's own settings, `site.toml`: what it holds, what it reveals, and what it lets a server ask of it.

    [site]     name = "north-clinic", number = 3        (the number is optional: its place in a known federation)
    [data]     source = "npz:/data/all.npz", client = "north-clinic", seed = 0
    [privacy]  histogram = "exact" | "noised" | "off", epsilon = 1.0, delta = 1e-5, epsilon_limit = 10.0,
               update_noise = 2.0, update_clip = 1.0   (both optional: what it demands of a run's update-noise)
    [allow]    methods = ["sgd", "prox"], models = ["small_cnn"], validation = 0.5, least = 1,
               evaluations = 2, evaluations_in_all = 10000
    [state]    folder = "state"

The defaults reveal and allow little: no histogram, and nothing but what is built in. Paths are relative to the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.files import read_toml
from fedgsp.data.sources import KINDS as SOURCES
from fedgsp.data.sources import parse
from fedgsp.models.catalog import BUILT_IN

Histogram = Literal["exact", "noised", "off"]
MODELS = tuple(BUILT_IN)
ENTRIES = {
    "site": ("name", "number"),
    "data": ("source", "client", "seed"),
    "privacy": ("histogram", "epsilon", "delta", "epsilon_limit", "update_noise", "update_clip"),
    "allow": ("methods", "models", "validation", "least", "evaluations", "evaluations_in_all"),
    "state": ("folder",),
}
LONGEST_NAME = 100


@dataclass(frozen=True)
class Site:
    """A site: `client` picks one client's shard of `source`, by name or number; without it the source must have just one.

    `methods` are kinds of local rules (None: those that are built in and allow it), `models` names of models that a server may
    have built here; a rule or a model of somebody's own (`package.module:name`) is code that would be imported, so it must be
    listed. `validation` is the largest share of its training samples that the site lets be scored, `least` how many samples a
    part must have to be scored at all, `evaluations` how many models it scores in a round and `evaluations_in_all` on one
    version of its data. `epsilon_limit` is what all draws of noised histograms together may reveal. `update_noise` is the least
    noise on its updates, as a multiple of the clip, and `update_clip` the longest clip, with which it trains (None: any).
    """

    name: str
    source: str
    state: Path
    number: int | None = None
    client: str | None = None
    seed: int = 0
    histogram: Histogram = "off"
    epsilon: float = 1.0
    delta: float = 1e-5
    methods: tuple[str, ...] | None = None
    models: tuple[str, ...] = field(default=MODELS)
    epsilon_limit: float = 10.0
    validation: float = 0.5
    least: int = 1
    evaluations: int = 2
    evaluations_in_all: int = 10_000
    update_noise: float | None = None
    update_clip: float | None = None


def read_site(path: Path) -> Site:
    """The settings of a site, refused with a sentence where they make no sense."""
    table = read_toml(path, "the site's settings")
    for section, entries in table.items():
        if section not in ENTRIES:
            raise InputError(f"{path} has no section '{section}': {did_you_mean(section, ENTRIES)}")
        if not isinstance(entries, dict):
            raise InputError(f"{path}: [{section}] must be a table.")
        for name in entries:
            if name not in ENTRIES[section]:
                raise InputError(f"{path} [{section}] has no entry '{name}': {did_you_mean(name, ENTRIES[section])}")
    site, data, privacy, allow, state = (table.get(section, {}) for section in ENTRIES)
    base = path.resolve().parent
    name = site.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InputError(f"{path}: [site] name must be a text of 1 to {LONGEST_NAME} printable characters.")
    source = data.get("source")
    if not isinstance(source, str):
        raise InputError(f'{path}: [data] source must say where the data is, such as "npz:/data/mine.npz".')
    made = Site(name, _based(source, base), base / str(state.get("folder", "state")))
    made = replace(
        made,
        number=_whole(site.get("number"), f"{path} [site] number"),
        client=None if "client" not in data else str(data["client"]),
        seed=_whole(data.get("seed", 0), f"{path} [data] seed") or 0,
        methods=_texts(allow["methods"], f"{path} [allow] methods") if "methods" in allow else None,
        models=_texts(allow.get("models", MODELS), f"{path} [allow] models"),
    )
    histogram = privacy.get("histogram", "off")
    if histogram not in ("exact", "noised", "off"):
        raise InputError(f'{path}: [privacy] histogram must be "exact", "noised" or "off", not {histogram!r}.')
    epsilon, delta = (_real(privacy.get(key, default), f"{path} [privacy] {key}") for key, default in _NOISE.items())
    if not 0.001 <= epsilon <= 1000:
        raise InputError(f"{path}: [privacy] epsilon must be between 0.001 and 1000, not {epsilon}.")
    if not (delta == 0 or 1e-14 <= delta < 1):
        raise InputError(f"{path}: [privacy] delta must be 0, or at least 1e-14 and below 1, not {delta}.")
    limit = _real(privacy.get("epsilon_limit", Site.epsilon_limit), f"{path} [privacy] epsilon_limit")
    if not 0 < limit <= 1e6:
        raise InputError(f"{path}: [privacy] epsilon_limit must be above 0 and at most 1e6, not {limit}.")
    made = replace(made, histogram=histogram, epsilon=epsilon, delta=delta, epsilon_limit=limit, **_scoring(allow, path))
    return replace(made, **_demands(privacy, path))


_NOISE = {"epsilon": 1.0, "delta": 1e-5}


def _scoring(allow: dict[str, Any], path: Path) -> dict[str, Any]:
    """What the site lets a server learn by scores."""
    validation = _real(allow.get("validation", Site.validation), f"{path} [allow] validation")
    if not 0 <= validation < 1:
        raise InputError(f"{path}: [allow] validation must be a share from 0 up to 1, not {validation}.")
    names = ("least", "evaluations", "evaluations_in_all")
    return {"validation": validation, **{n: _whole(allow[n], f"{path} [allow] {n}") for n in names if n in allow}}


def _demands(privacy: dict[str, Any], path: Path) -> dict[str, Any]:
    """What the site demands of the noise on its updates."""
    found: dict[str, Any] = {}
    for name in ("update_noise", "update_clip"):
        if name in privacy:
            found[name] = _real(privacy[name], f"{path} [privacy] {name}")
            if not 0 < found[name] <= 1e4:
                raise InputError(f"{path}: [privacy] {name} must be above 0 and at most 10000, not {found[name]}.")
    return found


def _based(source: str, base: Path) -> str:
    """The source with its path made absolute from the settings' own folder."""
    parsed = parse(source if ":" in source or Path(source).is_absolute() else str(base / source))
    if not parsed.path or not SOURCES[parsed.kind].local:
        return str(parsed)
    return str(replace(parsed, path=str((base / parsed.path).resolve())))


def _whole(value: Any, where: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InputError(f"{where} must be a whole number of at least 0, not {value!r}.")
    return value


def _real(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{where} must be a number, not {value!r}.")
    return float(value)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{where} must be a list of texts.")
    return tuple(value)
