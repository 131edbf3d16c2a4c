"""The last step for data however it came in: `standardise=` and `transform=`, from Python, a source text or a config file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

EACH_CLIENT = "client"
Standardise = bool | str
"""True: by the population's means and deviations; "client": by each client's own."""
Transform = str | Callable[[Any], Any]
"""A name such as "crop2+flip", `package.module:callable`, or a callable."""
WORDS: dict[str, Standardise] = {"true": True, "false": False, EACH_CLIENT: EACH_CLIENT}


def finished(data: FederatedData, standardise: Standardise = False, transform: Transform | None = None) -> FederatedData:
    """The data with features standardised, and training samples transformed, where that is wanted.

    Args:
        data: The federation.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own. False: as they are.
        transform: What training sees of a sample, other variants in every epoch (`FederatedData.with_transform`).

    Raises:
        InputError: There is no such way, or no such transform.
    """
    if standardise not in (True, False, EACH_CLIENT):
        raise InputError(f"`standardise=` is True, False or '{EACH_CLIENT}', not {standardise!r}.")
    if standardise:
        data = data.standardised(each_client=standardise == EACH_CLIENT)
    return data if transform is None else data.with_transform(transform)


def standardise_word(text: str) -> Standardise:
    """What a source text says: true, false or client."""
    if text.lower() not in WORDS:
        raise InputError(f"standardise is true, false or {EACH_CLIENT}, not '{text}'.")
    return WORDS[text.lower()]
