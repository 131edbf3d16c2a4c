"""Golden digests: no bit moves by accident.

The final state of every named method, and of three combinations, after three rounds on a tiny federation. `digests.json` has
them by what decides bits on a machine (torch, processor, kernel). On a machine that is not in the file a few figures of each
final model are compared instead, to the rounding that another processor brings.

    python -m tests.golden.test_digests        writes the digests of this machine; a commit that moves one says so
"""

from __future__ import annotations

import pytest

from fedgsp.fast.build import library
from tests.support import golden


@pytest.mark.parametrize("name", golden.NAMES)
@pytest.mark.parametrize("fast", ["auto", "off"])
def test_the_final_state_is_the_golden_one(name: str, fast: str) -> None:
    result = golden.run(name, fast=fast)
    stored = golden.STORED["machines"].get(golden.machine(fast, result.run.worker_setup.kernel.name), {}).get(name)
    if stored is not None:
        assert result.state.digest() == stored, "a bit moved: if it was meant to, write the digests anew and say so"
    assert golden.figures(result) == pytest.approx(golden.STORED["figures"][name], rel=2e-2, abs=1e-3)


def test_a_known_machine_has_digests_of_its_kernel() -> None:
    """Else nothing but figures would be compared: even a comment in `kernels.c` gives the kernel another name."""
    known, found = golden.STORED["machines"], library()
    if golden.machine("off", "") not in known or isinstance(found, str):
        pytest.skip("no digests of this machine, or no compiler")
    assert golden.machine("auto", found.name) in known


if __name__ == "__main__":
    golden.write()
