"""Hyper-parameters of server rules, each refused with a sentence."""

from __future__ import annotations

import math

from fedgsp.core.errors import InputError


def require_positive(rule: str, name: str, value: float) -> None:
    """A finite number above 0, else an InputError."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"the server rule '{rule}': {name} must be a positive number, not {value}.")


def require_share(rule: str, name: str, value: float) -> None:
    """A number from 0 up to, not including, 1, else an InputError."""
    if not 0 <= value < 1:
        raise InputError(f"the server rule '{rule}': {name} must be at least 0 and below 1, not {value}.")


def require_weights(rule: str, value: str) -> None:
    """ "samples" or "uniform", else an InputError."""
    if value not in ("samples", "uniform"):
        raise InputError(f"the server rule '{rule}': weights must be 'samples' or 'uniform', not '{value}'.")
