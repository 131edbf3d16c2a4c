"""A site that demands noise: it trains only if the run's local rule clips and noises updates at least as it says.

What a hop costs in privacy follows from the noise as a multiple of the clip, so that is what is demanded; the clip itself
bounds how far one update of the site can move a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import FedgspError
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from torch import nn

    from fedgsp.client.rules import SGD
    from fedgsp.engine.transports.flower.site import Site


def check_noise(site: Site, rule: dict[str, Any]) -> None:
    """Refuse a local rule, as plain data, that adds less noise than the site demands.

    Raises:
        Refused: For good: the run would have to be another.
    """
    if site.update_noise is None and site.update_clip is None:
        return
    from fedgsp.client.update_noise import UpdateNoise  # here, since most sites demand none
    from fedgsp.parts import decode

    wanted = []
    if site.update_noise is not None:
        wanted.append(f"noise of at least {site.update_noise:g} clips")
    if site.update_clip is not None:
        wanted.append(f"a clip of at most {site.update_clip:g}")
    demand = f"the site '{site.name}' trains only with update-noise ({' and '.join(wanted)})"
    table = rule.get("privacy")
    if not isinstance(table, dict) or table.get("kind") != UpdateNoise.kind:
        raise Refused(f"{demand}, and this run's local rule adds none", for_good=True)
    try:
        noise = decode("privacy", table, "the local rule's privacy")
    except FedgspError as error:
        raise Refused(str(error), for_good=True) from error
    if site.update_noise is not None and noise.noise < site.update_noise:
        raise Refused(f"{demand}, and this run's adds {noise.noise:g}", for_good=True)
    if site.update_clip is not None and noise.clip > site.update_clip:
        raise Refused(f"{demand}, and this run's clip is {noise.clip:g}", for_good=True)


def check_sends(site: Site, rule: SGD, model: nn.Module) -> None:
    """Refuse a rule that sends what the noise does not hide, where the site demands noise."""
    if (site.update_noise is not None or site.update_clip is not None) and (rule.upload_spec(model) or not rule.hands_on):
        raise Refused(
            f"the site '{site.name}' trains only with update-noise, and the local rule '{rule.kind}' sends more than its model",
            for_good=True,
        )
