"""What a study leaves behind: tables (CSV, Markdown), figures (PNG, SVG) and one JSON file with all of it and its origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.core.tables import html_table
from fedgsp.report.notebook import page
from fedgsp.report.plotting import can_plot
from fedgsp.report.study_figures import Picture, draw_picture
from fedgsp.run.files import write_whole
from fedgsp.run.versions import versions
from fedgsp.study.folding import folded
from fedgsp.study.tables import Table

SCHEMA = 2


@dataclass(frozen=True, repr=False)
class Findings:
    """What came of a study.

    Args:
        study: Its name.
        title: The heading of its page.
        tables: Tables of the page.
        pictures: Figures of the page.
        facts: The numbers by name, for whoever draws conclusions.
        notes: Sentences that stand above the tables.
    """

    study: str
    title: str
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    facts: dict[str, Any]
    notes: Sequence[str] = field(default_factory=tuple)

    def __repr__(self) -> str:
        tables = ", ".join(f"{table.name} ({len(table.rows)} rows)" for table in self.tables)
        return f"Findings of {self.study}: {self.title}\n  tables: {tables}\n  pictures: {len(self.pictures)}"

    def _repr_html_(self) -> str:
        tables = [html_table(t.title, [c.name for c in t.columns], t.shown(), t.note) for t in self.tables]
        return page(self.title, [*(f"<p>{escape(note)}</p>" for note in self.notes), *tables], {}, "")


@dataclass(frozen=True)
class Origin:
    """Where findings come from.

    Args:
        preset: Name of the settings.
        command: The command that gives the findings again.
        data: The data's source, fingerprint, clients and samples.
        used: The units or runs that were used, by name.
        versions: The versions of the packages that made them.
    """

    preset: str
    command: str
    data: dict[str, Any]
    used: dict[str, dict[str, Any]]
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def seeds(self) -> list[int]:
        """All that were used: a run has one, a piece of computing may have several."""
        several = {seed for unit in self.used.values() for seed in unit.get("seeds", ())}
        return sorted({unit["seed"] for unit in self.used.values() if "seed" in unit} | several)


def write_findings(
    found: Findings, origin: Origin, folder: Path, *, draw: bool = True, endings: Sequence[str] = ("png", "svg")
) -> bool:
    """Write README.md, STUDY.json, a .csv for each table that is kept so, and each figure.

    Args:
        found: What to write.
        origin: Where it comes from.
        folder: Where to write it.
        draw: Whether to draw the figures; without matplotlib they are not drawn.
        endings: The kinds of files of a figure; the page shows the .png.

    Returns:
        Whether the page shows its figures: not if they had to be drawn and there is no matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown = not draw or can_plot()
    for table in (table for table in found.tables if table.kept):
        write_whole(folder / f"{table.name}.csv", table.csv().encode())
    for picture in found.pictures if draw and shown else ():
        draw_picture(picture, folder, endings)
    write_whole(folder / "README.md", _page(found, origin, shown, "svg" in endings).encode())
    record = {
        "schema": SCHEMA,
        "study": found.study,
        "preset": origin.preset,
        "command": origin.command,
        "seeds": origin.seeds,
        "data": origin.data,
        "versions": dict(origin.versions),
        "facts": found.facts,
        "notes": list(found.notes),
        "tables": {table.name: table.as_dict() for table in found.tables},
        "figures": {picture.name: picture.digest() for picture in found.pictures},
        "units": origin.used,
    }
    write_whole(folder / f"{found.study}.json", json.dumps(record, indent=1, allow_nan=False).encode() + b"\n")
    return shown


def read_findings(out: Path, study: str) -> dict[str, Any] | None:
    """What a study left behind in `out`; None if it has not been run there."""
    file = out / study / f"{study}.json"
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InputError(f"{file} is of another version of fedgsp; run the study again, finished units are reused.")
    return found


def _page(found: Findings, origin: Origin, shown: bool, svg: bool) -> str:
    told, data = origin.versions, origin.data
    blocks = [f"# {found.title}", *found.notes]
    blocks += [table.markdown().rstrip() for table in found.tables]
    blocks += [f"![{picture.name}]({picture.name}.png)\n\n{picture.caption}" for picture in found.pictures if shown]
    figures = ", figures as SVG" if found.pictures and shown and svg else ""
    blocks.append(
        f"Made by `{origin.command}`; seeds {', '.join(map(str, origin.seeds)) or 'none'}; data {data['source']}, fingerprint "
        f"`{data['fingerprint']}` ({data['clients']} clients, {data['samples']} samples); fedgsp {told['fedgsp']}, torch "
        f"{told['torch']}. Tables as CSV{figures} and everything as JSON (`{found.study}.json`, which also names the runs) are "
        f"beside this page."
    )
    return folded("\n\n".join(blocks) + "\n")
