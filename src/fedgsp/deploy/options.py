"""From what somebody typed to a deployment on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from fedgsp.data.cache import open_entry
from fedgsp.data.sources import absolute, parse
from fedgsp.deploy.generate import Expected, SiteData, Wanted, write_deployment
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import free_ports
from fedgsp.methods import named
from fedgsp.parts import encode
from fedgsp.plan import Grouped

if TYPE_CHECKING:
    from fedgsp.method import Method

MANY_SITES = 30
MOST_NODES_HERE = 24
"""Each node takes 200 to 300 MB and, while it trains, a process more."""


@dataclass(frozen=True)
class Options:
    """What was typed; None where nothing was."""

    nodes: int | None = None
    sites: tuple[str, ...] = ()
    data: str | None = None
    server_data: str | None = None
    method: str | None = None
    model: str | None = None
    rounds: int | None = None
    seed: int | None = None
    config: Path | None = None
    stock_nodes: bool = False

    @property
    def untouched(self) -> bool:
        """Whether nothing was typed."""
        return self == Options()


def write_from(options: Options, place: Deployment, node_ports: tuple[int, ...] = ()) -> None:
    """Write a deployment as it was asked for; nothing is written where it makes no sense."""
    if options.nodes is not None and options.sites:
        raise InputError("give --nodes or the sites' names, not both.")
    if len(set(options.sites)) != len(options.sites):
        raise InputError("two sites have the same name.")
    if options.nodes is not None and options.nodes < 1:
        raise InputError(f"a deployment needs at least one node, not {options.nodes}.")
    names = options.sites or tuple(f"site-{k}" for k in range(options.nodes or 3))
    source, data = _data(options.data, len(names))
    settings = {"method": options.method, "model": options.model, "rounds": options.rounds, "seed": options.seed}
    text = None
    if options.config is not None:
        odd = [name for name, value in settings.items() if value is not None]
        if odd:
            raise InputError(f"--{odd[0]} and --config cannot both be given; change the file.")
        text = _config_text(options.config)
    method = named(options.method or "fedgsp")
    wanted = Wanted(
        {name: SiteData(source, data.clients[k], k) for k, name in enumerate(names)},
        server_data=None if options.server_data is None else absolute(options.server_data),
        expected=_expected(data),
        config=text,
        planner=fitted(method, len(names)),
        stock_nodes=options.stock_nodes,
        node_ports=node_ports,
        **{name: value for name, value in settings.items() if value is not None},  # type: ignore[arg-type]
    )
    write_deployment(place, wanted)


def fitted(method: Method, sites: int) -> dict[str, Any] | None:
    """The method's planner for a handful of sites, where its own was made for hundreds of clients; None: it is right as it is.

    A share of 30 % of six sites would leave most of them idle, and ten groups of six sites are chains of one.
    """
    planner = method.planner
    if sites >= MANY_SITES or not isinstance(planner, Grouped):
        return None
    growth: Any = planner.growth
    if isinstance(getattr(growth, "beta", None), int):
        growth = replace(growth, beta=max(1, min(growth.beta, round(sites / 3))))
    return encode(replace(planner, growth=growth, kappa=1.0))


def loopback(root: Path, nodes: int, insecure: bool) -> tuple[Deployment, tuple[int, ...]]:
    """A deployment whose parts are all on this machine, on ports that are free now; the nodes' ports."""
    if not 1 <= nodes <= MOST_NODES_HERE:
        raise InputError(f"one machine takes 1 to {MOST_NODES_HERE} nodes, not {nodes}.")
    link, *rest = free_ports(nodes + 1)
    address = f"127.0.0.1:{link}"
    return Deployment(root, address, address, insecure, one_machine=True), tuple(rest)


def _data(source: str | None, sites: int) -> tuple[str, FederatedData]:
    chosen = source or f"glyphs:clients={sites}"
    parsed = parse(chosen)
    if parsed.kind == "glyphs" and "clients" not in parsed.options:
        chosen = f"{chosen}{',' if ':' in chosen else ':'}clients={sites}"
    data = load(chosen)
    if len(data) < sites:
        raise InputError(f"{chosen} has {len(data)} clients, too few for {sites} sites.")
    return absolute(chosen), data


def _expected(data: FederatedData) -> Expected:
    entry = open_entry(data.memo) if data.memo is not None else None
    names = entry.meta.get("class_names") if entry is not None else None
    kind = str(data.features.dtype)
    return Expected(data.sample_shape, kind, data.classes, None if names is None else tuple(map(str, names)))


def _config_text(path: Path) -> str:
    from fedgsp.deploy.settings import read_deployment

    read_deployment(path)
    return path.read_text(encoding="utf-8")
