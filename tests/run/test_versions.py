from __future__ import annotations

from fedgsp.run.versions import versions


def test_versions_name_what_produced_the_numbers() -> None:
    assert set(versions()) == {"fedgsp", "python", "torch", "numpy", "system"}
