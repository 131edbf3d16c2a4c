"""How parameters that came later are written down: not at all while they have their default.

So a run that does not use them has the text, and with it the identity and the digest, that it had before they existed.
"""

from __future__ import annotations

from collections.abc import Mapping

UNSAID = "unsaid"
LATER: Mapping[str, bool] = {UNSAID: True}
"""The metadata of such a field: `dataclasses.field(default=..., metadata=LATER)`."""
