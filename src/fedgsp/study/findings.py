"""What a study leaves behind: tables (CSV, Markdown), figures (PNG, SVG) and one JSON file with all of it and its origin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.report.study_figures import Picture, draw_picture
from fedgsp.run.files import write_whole
from fedgsp.run.versions import versions
from fedgsp.study.tables import Table

SCHEMA = 1


@dataclass(frozen=True)
class Findings:
    """Tables, figures, notes, and `facts`: the numbers by name, for whoever draws conclusions."""

    study: str
    title: str
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    facts: dict[str, Any]
    notes: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Origin:
    """Where findings come from: the preset, the command that gives them again, the data (source, fingerprint, clients,
    samples) and the units or runs that were used.
    """

    preset: str
    command: str
    data: dict[str, Any]
    used: dict[str, dict[str, Any]]

    @property
    def seeds(self) -> list[int]:
        """All that were used: a run has one, a piece of computing may have several."""
        several = {seed for unit in self.used.values() for seed in unit.get("seeds", ())}
        return sorted({unit["seed"] for unit in self.used.values() if "seed" in unit} | several)


def write_findings(found: Findings, origin: Origin, folder: Path) -> None:
    """Into folder: README.md, STUDY.json, a .csv for each table, a .png and .svg for each figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in found.tables:
        write_whole(folder / f"{table.name}.csv", table.csv().encode())
    for picture in found.pictures:
        draw_picture(picture, folder)
    write_whole(folder / "README.md", _page(found, origin).encode())
    record = {
        "schema": SCHEMA,
        "study": found.study,
        "preset": origin.preset,
        "command": origin.command,
        "seeds": origin.seeds,
        "data": origin.data,
        "versions": versions(),
        "facts": found.facts,
        "notes": list(found.notes),
        "tables": {table.name: table.as_dict() for table in found.tables},
        "figures": [f"{picture.name}.{suffix}" for picture in found.pictures for suffix in ("png", "svg")],
        "units": origin.used,
    }
    write_whole(folder / f"{found.study}.json", json.dumps(record, indent=1, allow_nan=False).encode() + b"\n")


def read_findings(out: Path, study: str) -> dict[str, Any] | None:
    """What a study left behind; None if it has not been run there."""
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


def _page(found: Findings, origin: Origin) -> str:
    told, data = versions(), origin.data
    blocks = [f"# {found.title}", *found.notes]
    blocks += [table.markdown().rstrip() for table in found.tables]
    blocks += [f"![{picture.name}]({picture.name}.png)\n\n{picture.caption}" for picture in found.pictures]
    blocks.append(
        f"Made by `{origin.command}`; seeds {', '.join(map(str, origin.seeds)) or 'none'}; data {data['source']}, fingerprint "
        f"`{data['fingerprint']}` ({data['clients']} clients, {data['samples']} samples); fedgsp {told['fedgsp']}, torch "
        f"{told['torch']}. Tables as CSV, figures as SVG and everything as JSON (`{found.study}.json`, which also names the "
        f"runs) are beside this page."
    )
    return "\n\n".join(blocks) + "\n"
