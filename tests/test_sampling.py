"""Which cases run in a commit, and which tests come first."""

from __future__ import annotations

from pathlib import Path

from tests.quick import chosen as cheapest
from tests.sampling import chosen
from tests.scheduling import APART, longest_first, scope_of

CASES = [f"tests/x.py::test_y[{k}]" for k in range(20)]


def test_a_seed_draws_the_same_cases_again_and_another_draws_others() -> None:
    drawn = chosen(CASES, 5, 1, "test_y")
    assert len(drawn) == 5
    assert drawn == chosen(CASES[::-1], 5, 1, "test_y")
    assert drawn != chosen(CASES, 5, 2, "test_y")
    assert drawn != chosen(CASES, 5, 1, "test_z")
    assert chosen(CASES[:3], 5, 1, "test_y") == set(CASES[:3])


def test_every_case_is_drawn_sooner_or_later() -> None:
    assert set().union(*(chosen(CASES, 5, seed, "test_y") for seed in range(60))) == set(CASES)


def test_the_longest_file_comes_first_and_stays_whole() -> None:
    known = {"tests/a.py::one": (1.0, 2.0), "tests/b.py::two": (5.0, 3.0), "tests/deploy/c.py::x": (1.0, 3.0)}
    tests = ["tests/a.py::one[1]", "tests/a.py::one[2]", "tests/b.py::two", "tests/deploy/c.py::x", "tests/deploy/d.py::new"]
    assert longest_first(tests, known) == [*tests[2:3], *tests[3:5], *tests[:2]]


def test_the_quick_tier_has_the_cheapest_within_its_budget() -> None:
    known = {"a": (1.0, 9.0), "b": (2.0, 0.0), "c": (3.0, 0.0), "d": (0.0, 1.0)}
    assert cheapest(known, 3.5) == {"d", "a", "b"}


def test_files_that_take_the_same_come_in_one_order_in_every_process() -> None:
    times = [0.1, 0.2, 0.3, 0.7, 1e-9]
    known = {f"tests/{file}.py::t{k}": (times[k - shift], 0.0) for file, shift in (("a", 0), ("b", 1)) for k in range(5)}
    tests = [f"tests/{file}.py::t{k}" for file in ("b", "a") for k in range(5)]
    assert longest_first(tests, known) == [*tests[5:], *tests[:5]]


def test_files_beside_real_deployments_that_run_apart_start_none() -> None:
    root = Path(__file__).parents[1]
    for name in APART:
        text = (root / name).read_text()
        assert not any(word in text for word in ("real_deployments", "network_namespaces", "subprocess", "socket")), name
        assert scope_of(f"{name}::test_x") == name
    assert scope_of("tests/deploy/test_real.py::test_x") == "tests/deploy"
