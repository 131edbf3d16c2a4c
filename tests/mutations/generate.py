"""Generated faults: comparisons turned, numbers off by one, calls dropped, conditions negated, operators exchanged."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = ("core", "plan", "client", "server", "run")
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
EXCHANGED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Generated:
    """A piece of a file of src/fedgsp and what it is replaced by."""

    file: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"

    @property
    def name(self) -> str:
        """What it does, without the line: for the list of accepted survivors."""
        return f"{self.file}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"


def sample(source: Path, tests: Path, seed: int) -> Iterator[Generated]:
    """Faults in an order that the seed decides; every file with tests of its own comes up once before any comes up twice."""
    chance = random.Random(seed)
    piles = []
    for room in ROOMS:
        for path in sorted((source / room).glob("*.py")):
            own = tests / room / f"test_{path.stem}.py"
            if own.exists() and (pile := list(faults_of(path, path.relative_to(source), own.relative_to(tests)))):
                chance.shuffle(pile)
                piles.append(pile)
    while piles:
        chance.shuffle(piles)
        for pile in piles:
            yield pile.pop()
        piles = [pile for pile in piles if pile]


def faults_of(path: Path, name: Path, tests: Path) -> Iterator[Generated]:
    """All that can be generated for a file."""
    text = path.read_text()
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _code(ast.parse(text)):
        for changed in _changes(node):
            begin, end = (
                starts[node.lineno - 1] + node.col_offset,
                starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0),
            )
            old = text.encode()[begin:end].decode()
            yield Generated(str(name), node.lineno, begin, end, old, changed, str(tests))


def _code(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Statements and expressions that run; annotations, errors' sentences and what is for types only are left out."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.arguments | ast.Assert):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield child.value
                yield from _code(child.value)
            continue
        if isinstance(child, ast.expr | ast.stmt):
            yield child
        yield from _code(child)


def _changes(node: ast.expr | ast.stmt) -> Iterator[str]:
    """What a node could be by mistake."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        yield f"({ast.unparse(ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in EXCHANGED:
        yield f"({ast.unparse(ast.BinOp(node.left, EXCHANGED[type(node.op)](), node.right))})"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(ast.BoolOp(other, node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield str(node.value + 1)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield str(not node.value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "pass"
    elif isinstance(node, ast.IfExp):
        yield f"({ast.unparse(node.orelse)})"
