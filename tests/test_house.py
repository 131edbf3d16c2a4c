"""What the house promises of itself: short chains of imports, one meaning a class name, a short page, few files of results."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LONGEST_CHAIN = 16


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    found = {}
    for file in sorted((SOURCE / "fedgsp").rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(file.read_text())
    return found


def imported(tree: ast.Module) -> set[str]:
    """The package's modules that a module imports when it is imported."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules().keys()


def test_no_chain_of_imports_is_longer_than_sixteen() -> None:
    depth: dict[str, tuple[str, ...]] = {}

    def longest(name: str, above: frozenset[str]) -> tuple[str, ...]:
        if name not in depth:
            below = sorted(imported(modules()[name]) - above - {name})
            depth[name] = (name, *max((longest(one, above | {name}) for one in below), key=len, default=()))
        return depth[name]

    found = max((longest(name, frozenset()) for name in modules()), key=len)
    assert len(found) <= LONGEST_CHAIN, " > ".join(found)


def test_a_class_name_has_one_meaning() -> None:
    where = defaultdict(set)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(name)
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


def test_the_page_about_the_architecture_is_short_and_results_are_few() -> None:
    assert (ROOT / "ARCHITECTURE.md").stat().st_size < 10_000
    assert sum(file.is_file() for file in (ROOT / "results").rglob("*")) < 60
