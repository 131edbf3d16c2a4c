"""`fedgsp study report`: the paper's numbers beside ours, from the studies that are finished in a folder.

README.md has one line a claim: the paper's number, ours, the reason for the difference; claims.md gives every verdict and its
source. Remarks that only a person who has seen the figures can make go into remarks.toml beside them (`icg-6 = "..."`)
and are woven in, so that both pages can be made anew whenever another unit is finished.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.run.config import RunConfig
from fedgsp.run.files import write_whole
from fedgsp.study.findings import read_findings, write_findings
from fedgsp.study.folding import folded
from fedgsp.study.paper.catalog import PICTURES, STUDIES
from fedgsp.study.paper.claims import CLAIMS, Claim
from fedgsp.study.paper.first_screen import first_screen
from fedgsp.study.paper.presets import asked_preset
from fedgsp.study.paper.runner import PaperRunner
from fedgsp.study.paper.verdicts import Verdict
from fedgsp.study.records import DataFacts
from fedgsp.study.store import UnitStore

Adjusted = Callable[[Sequence[str]], Callable[[RunConfig], RunConfig]]
NOT_YET = "not measured yet"
REMARKS = "remarks.toml"
STAND_IN = (
    " Where it says small_cnn, the paper's network, leaf_cnn, was out of reach for the number of runs (what a step "
    "takes: docs/studies.md)."
)


def derive(out: Path, into: Path | None = None, *, adjusted: Adjusted, draw: bool = True) -> list[Path]:
    """Make every page anew from the stored runs; nothing is trained, and the data is not needed.

    Args:
        out: Folder of the studies.
        into: Where the pages go; None: to where they are.
        adjusted: Makes a change of configurations of `--set` texts.
        draw: Whether to draw the figures, too.

    Returns:
        The pages that were written.

    Raises:
        InputError: No study was finished there, or the store lacks a run.
    """
    into = into or out
    store = UnitStore(out)
    for name, asked in store.studies.items():
        preset = asked_preset(asked["preset"], asked["model"], asked["rounds"])
        runner = PaperRunner(
            preset, None, DataFacts(**asked["data"]), out, store=store, seeds=asked["seeds"], methods=asked["methods"],
            adjust=adjusted(asked["set"]),
        )  # fmt: skip
        found = STUDIES[name].show(runner, STUDIES[name].gather(runner))
        write_findings(found, runner.origin(asked["command"], asked["preset"]), into / name, draw=draw, endings=PICTURES)
    return [*(into / name / "README.md" for name in store.studies), *write_report(into, remarks=out / REMARKS)]


def write_report(out: Path, *, remarks: Path | None = None) -> list[Path]:
    """Write README.md and claims.md into `out`, from the findings of the studies there; returns them.

    Args:
        out: Folder of the studies.
        remarks: The file of remarks; None: remarks.toml in `out`.
    """
    found = {name: told for name in STUDIES if (told := read_findings(out, name)) is not None}
    if not found:
        raise InputError(f"there is no finished study in {out}; run `fedgsp study all --out {out}` first.")
    said = _remarks(remarks or out / REMARKS)
    verdicts = {claim.name: _checked(claim, found) for claim in CLAIMS}
    pages = {"README.md": _side_by_side(verdicts, found, said), "claims.md": _all_verdicts(verdicts, found, said)}
    for name, text in pages.items():
        write_whole(out / name, folded(text).encode())
    return [out / name for name in pages]


def _checked(claim: Claim, found: Mapping[str, Any]) -> list[Verdict]:
    """Verdicts, or one that says that the study is missing."""
    if not claim.study:
        return list(claim.check({}))
    if claim.study not in found:
        return [Verdict("", NOT_YET, NOT_YET)]
    try:
        return list(claim.check(found[claim.study]["facts"])) or [Verdict("", NOT_YET, NOT_YET)]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"the findings of the study '{claim.study}' lack what the claim '{claim.name}' needs ({error!r}); run it again, "
            f"finished units are reused."
        ) from error


def _side_by_side(verdicts: Mapping[str, list[Verdict]], found: Mapping[str, Any], remarks: Mapping[str, str]) -> str:
    lines = [
        "# Results",
        "",
        *first_screen(found),
        "",
        "## The paper's numbers and ours",
        "",
        "Made by `fedgsp study report` from the runs in `units.parquet`. [claims.md](claims.md) has a verdict on every claim."
        + (STAND_IN if any("small_cnn" in one.scope for several in verdicts.values() for one in several) else ""),
        "",
        "| claim | the paper | here | reason for the difference |",
        "| --- | --- | --- | --- |",
    ]
    for claim in CLAIMS:
        ours = "<br>".join(f"{v.scope}: {v.ours}" if v.scope else v.ours for v in verdicts[claim.name])
        reason = "; ".join(text for text in (claim.reason, remarks.get(claim.name, "")) if text)
        lines.append(_row(f"{claim.text} ({claim.where})", claim.paper, ours, reason))
    return "\n".join([*lines, "", *_origins(found)]) + "\n"


def _all_verdicts(verdicts: Mapping[str, list[Verdict]], found: Mapping[str, Any], remarks: Mapping[str, str]) -> str:
    lines = [
        "# Verdicts on the claims of the paper",
        "",
        "A number holds if ours is within a quarter of it and the difference is larger than the noise; a saving holds if it is "
        "within five points and leaves no more than a quarter more or less of the cost. Noise: 95 % intervals of differences "
        "paired over seeds (Student's t); where several methods are compared, 5 % over all pairs by Holm's correction. What "
        "follows from a formula is named true by construction. A verdict is for the setting that stands before it.",
    ]
    for claim in CLAIMS:
        source = f" Study: [{claim.study}]({claim.study}/README.md)." if claim.study in found else ""
        lines += ["", f"## {claim.name}", "", f"{claim.text[0].upper()}{claim.text[1:]} ({claim.where}). The paper: "
                  f"{claim.paper}.{source}", ""]  # fmt: skip
        for one in verdicts[claim.name]:
            scope = f"{one.scope}: " if one.scope else ""
            lines.append(f"- {scope}**{one.verdict}**" + (f": {one.ours}" if one.ours != one.verdict else ""))
        if claim.reason:
            lines += ["", f"Known difference: {claim.reason}."]
        if claim.name in remarks:
            lines += ["", remarks[claim.name]]
    return "\n".join([*lines, "", *_origins(found)]) + "\n"


def _origins(found: Mapping[str, Any]) -> list[str]:
    """No number without its command, seeds and data."""
    lines = ["## Where the numbers come from", "", "| study | preset | command | seeds | data | fedgsp, torch |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for name, told in found.items():
        data, versions = told["data"], told["versions"]
        lines.append(
            _row(
                f"[{name}]({name}/README.md)", told["preset"], f"`{told['command']}`",
                ", ".join(map(str, told["seeds"])) or "-",
                f"{data['clients']} clients, {data['samples']} samples, fingerprint `{data['fingerprint'][:16]}`",
                f"{versions['fedgsp']}, {versions['torch']}",
            )
        )  # fmt: skip
    missing = [name for name, study in STUDIES.items() if study.of_paper and name not in found]
    return [*lines, *(["", f"Not run yet: {', '.join(missing)}."] if missing else [])]


def _remarks(file: Path) -> dict[str, str]:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    names = [claim.name for claim in CLAIMS]
    for name, text in told.items():
        if name not in names:
            raise InputError(f"{file} has a remark on '{name}', which is no claim: {did_you_mean(name, names)}")
        if not isinstance(text, str):
            raise InputError(f"{file}: the remark on '{name}' must be a text.")
    return told


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
