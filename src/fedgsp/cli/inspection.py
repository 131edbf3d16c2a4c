"""An inspection as a person reads it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedgsp.report.inspect import Inspection

WIDTH = 60


def show(found: Inspection) -> None:
    """Print it."""
    console = Console()
    console.print(Text(found.source or "data in memory", style="bold"))
    shape = "x".join(map(str, found.shape)) or "1"
    kind = f"{found.classes} classes" if found.classes else "real-valued targets"
    parts = ", ".join(f"{count:,} {name}" for name, count in found.parts.items() if count)
    console.print(
        f"{found.clients:,} clients, {found.samples:,} samples ({parts}) of {shape} {found.dtype}, {kind}", soft_wrap=True
    )
    console.print(f"fingerprint {found.fingerprint}", soft_wrap=True)
    if found.edition:
        console.print(found.edition, soft_wrap=True)
    console.print(_table(found))
    _scale(console, found)
    _duplicates(console, found)
    for advice in found.suggestions:
        console.print(Text("! ", style="yellow") + Text(advice), soft_wrap=True)


def _table(found: Inspection) -> Table:
    table = Table("", "least", "10 %", "median", "90 %", "most", box=None, padding=(0, 2, 0, 0))
    rows = [
        (f"samples (mean {found.sizes['mean']:.1f}, std {found.sizes['std']:.1f})", found.sizes, "{:.0f}"),
        ("classes of a client", found.classes_held, "{:.0f}"),
        (f"effective classes (all together {found.effective_classes_all:.1f})", found.effective_classes, "{:.1f}"),
        ("EMD to the population (0 to 2)", found.emd, "{:.2f}"),
        ("CPD between two clients (0 to 1.26)", found.cpd, "{:.4f}"),
    ]
    for name, values, form in rows:
        table.add_row(name, *(form.format(values[q]) for q in ("0", "0.1", "0.5", "0.9", "1")))
    return table


def _scale(console: Console, found: Inspection) -> None:
    """The scale from i.i.d. to one class a client, landmarks above, the federation below."""
    skew = found.skew
    like = f", like a Dirichlet({skew.alpha:.2g}) partition" if skew.alpha is not None else ""
    if skew.emd <= skew.emd_iid:
        like = ", on average no more than chance"
    console.print(
        f"label skew {100 * skew.place:.0f} of 100{like} (weighted mean EMD {skew.emd:.2f}; i.i.d. clients of these sizes: "
        f"{skew.emd_iid:.2f}); {skew.beyond:,} of {found.clients:,} clients are further from the population than chance "
        f"explains",
        soft_wrap=True,
    )
    line = ["─"] * (WIDTH + 1)
    for place in skew.landmarks.values():
        line[round(place * WIDTH)] = "┬"
    console.print(" ".join(["  0", "".join(line), "100"]))
    console.print("    " + " " * round(skew.place * WIDTH) + "▲ here")
    marks = ", ".join(f"{name} {100 * place:.0f}" for name, place in skew.landmarks.items())
    console.print(f"    landmarks: {marks}", soft_wrap=True)


def _duplicates(console: Console, found: Inspection) -> None:
    repeated = found.duplicates
    if not any(vars(repeated).values()):
        console.print("no sample is there twice")
        return
    console.print(
        f"repeated samples: {repeated.within_clients:,} within clients, {repeated.across_clients:,} held by several clients, "
        f"{repeated.test_in_train:,} test samples also in train ({repeated.test_in_own_train:,} of the same client)",
        soft_wrap=True,
    )
