"""Optional packages: imported when first needed, and their absence is one sentence that names the extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from fedgsp.core.errors import InputError


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """An optional package's module; `purpose` says what the person wanted when it was found missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{purpose} needs the package '{package}', which is not installed; run: pip install 'fedgsp[{extra}]'."
        ) from error
