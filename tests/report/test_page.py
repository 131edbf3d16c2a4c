"""The report page: one file, small, whole, and nothing foreign in it does anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.report.build import default_place, read_runs, write_report
from fedgsp.report.encode import packed, packed_scores, rounded
from fedgsp.report.page import build, embedded
from fedgsp.report.payload import payload, plan_strides
from tests.support import fake_runs

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"


class Elements(HTMLParser):
    """The elements of a page as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.texts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.inside:
            key = f"{self.inside[-1]}{len([1 for t, _ in self.found if t == self.inside[-1]])}"
            self.texts[key] = self.texts.get(key, "") + data


def page_of(*runs: Path) -> str:
    return build(payload(read_runs(list(runs))), "made now")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def unpacked(packed_: dict[str, Any]) -> list[int]:
    values: list[int] = np.frombuffer(base64.b64decode(packed_["data"]), dtype=f"<u{packed_['bytes']}").tolist()
    return values


def test_it_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    elements = Elements()
    page = page_of(fake_runs.write_run(tmp_path / "run"))
    elements.feed(page)
    for tag, attributes in elements.found:
        assert tag not in ("img", "iframe", "object", "embed")
        assert "src" not in attributes
        assert not str(attributes.get("href", "#")).startswith(("http", "//"))
    assert "url(" not in page.split("</style>")[0]
    assert not re.search(r"\son\w+=", page.split("<script")[0])


def test_the_policy_allows_exactly_the_script_and_styles_that_are_there(tmp_path: Path) -> None:
    page = page_of(fake_runs.write_run(tmp_path / "run"))
    elements = Elements()
    elements.feed(page)
    policy = next(a["content"] for t, a in elements.found if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    for kind, content in (("script-src", _last(page, "script")), ("style-src", _last(page, "style"))):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def _last(page: str, tag: str) -> str:
    found: list[str] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
    return found[-1]


def test_names_and_configuration_with_markup_stay_text(tmp_path: Path) -> None:
    names = [HOSTILE, "a&b", "\u2028x", *(f"c{k}" for k in range(7))]
    toml = f"""schema = 1\n[run]\nrounds = 5\n[method]\nname = '''{HOSTILE}'''\n[data]\nsource = '''{HOSTILE}'''\n"""
    run = fake_runs.write_run(tmp_path / "run", names=names, toml=toml)
    page = page_of(run)
    elements = Elements()
    elements.feed(page)
    assert [a.get("type") for t, a in elements.found if t == "script"] == ["application/json", None]
    assert not any(tag == "img" for tag, _ in elements.found)
    data = data_of(page)
    assert data["federations"][0]["names"][0] == HOSTILE
    assert data["runs"][0]["method"] == HOSTILE
    assert HOSTILE in data["runs"][0]["config"]


@pytest.mark.parametrize(
    "toml",
    [
        "",
        "method = 1\nrun = 2\nmodel = 3",
        "[run]\nrounds = 'many'\nseed = [1]\n[method.local]\nepochs = 'x'\n[model]\nname = 5",
    ],
)
def test_a_configuration_that_makes_no_sense_is_shown_all_the_same(tmp_path: Path, toml: str) -> None:
    body = data_of(page_of(fake_runs.write_run(tmp_path / "run", toml=toml)))["runs"][0]
    assert (body["config"], body["seed"], body["last"]) == (toml, 0, 5)


@pytest.mark.parametrize("text", ["</script>", "<!--", "&lt;", "]]>", "<SCRIPT"])
def test_data_cannot_end_its_block(text: str) -> None:
    made = embedded({"name": text})
    assert not set("<>&") & set(made)
    assert json.loads(made) == {"name": text}


def test_a_template_word_in_a_name_is_not_filled_in(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", method="{{script}}")
    page = page_of(run)
    assert '<h1 id="title">{{script}}, seed 0</h1>' in page


def test_the_page_holds_what_the_run_did(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", clients=12, rounds=20)
    body = data_of(page_of(run))["runs"][0]
    history = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    assert body["columns"]["round"] == list(range(1, 21))
    assert body["columns"]["steps"] == [entry["serial_steps_total"] for entry in history]
    np.testing.assert_allclose(body["columns"]["score"], [entry["accuracy"] for entry in history], rtol=1e-4)
    plans = [json.loads(line) for line in (run / "plans.jsonl").read_text().splitlines()[1:]]
    assert unpacked(body["plans"]["clients"]) == [c for plan in plans for chain in plan["chains"] for c in chain["clients"]]
    lengths = [np.repeat(pairs[1::2], pairs[::2]).tolist() for pairs in body["plans"]["lengths"]]
    assert lengths == [[len(chain["clients"]) for chain in plan["chains"]] for plan in plans]
    last = [json.loads(line)["values"] for line in (run / "scores.jsonl").read_text().splitlines()]
    shown = np.array(unpacked(body["scores"])[:-1]) / body["scores"]["scale"]
    np.testing.assert_allclose(shown, np.mean(last[-2:], axis=0), atol=2e-5)
    accuracies = [entry["accuracy"] for entry in history]
    assert body["final"]["value"] == pytest.approx((accuracies[18] + accuracies[19]) / 2, abs=1e-15)
    assert (body["final"]["window"], body["final"]["last"]) == ("mean of rounds 19-20", {"round": 20, "value": accuracies[19]})
    assert body["records"][-1] == [1 + accuracies.index(max(accuracies)), max(accuracies)]
    assert body["command"] == f"fedgsp run {run / 'config.toml'}"


def test_estimated_time_is_what_the_cost_command_says(tmp_path: Path) -> None:
    from fedgsp.cost import FLEETS, run_cost
    from fedgsp.run.reader import read_log

    run = fake_runs.write_run(tmp_path / "run", clients=12, rounds=6)
    body = data_of(page_of(run))["runs"][0]
    for name, fleet in FLEETS.items():
        whole = run_cost(read_log(run, "events"), fleet, 1e6, 1, 6)
        assert sum(body["columns"]["time"][name]) == pytest.approx(whole.seconds, rel=1e-4)
        assert sum(body["costs"][name].values()) == pytest.approx(whole.seconds)


def test_forty_runs_and_thousands_of_clients_stay_within_a_few_megabytes(tmp_path: Path) -> None:
    for k in range(40):
        fake_runs.write_run(tmp_path / "many" / f"m{k % 8}-s{k}", clients=60, rounds=20, seed=k, method=f"m{k % 8}")
    page = page_of(tmp_path / "many")
    assert len(page) < 1.5e6
    assert [len(group["runs"]) for group in data_of(page)["groups"]] == [5] * 8
    wide = page_of(fake_runs.write_run(tmp_path / "wide", clients=3550, rounds=12, classes=62, alpha=40.0))
    assert len(wide) < 1.5e6


def test_plans_are_thinned_evenly_when_there_are_too_many(tmp_path: Path) -> None:
    run = read_runs([fake_runs.write_run(tmp_path / "run", clients=40, rounds=60, kappa=1.0)])
    assert plan_strides(run, budget=40 * 60) == [1]
    assert plan_strides(run, budget=40 * 15) == [4]
    data = payload(run, budget=40 * 15)["runs"][0]
    assert data["plans"]["rounds"] == [*range(1, 11), *range(12, 61, 4)]


def test_a_folder_of_runs_is_reported_together_and_seeds_belong_together(tmp_path: Path) -> None:
    for method in ("fedavg", "fedgsp"):
        for seed in (0, 1):
            fake_runs.write_run(tmp_path / "study" / "runs" / f"{method}-{seed}", method=method, seed=seed)
    data = data_of(page_of(tmp_path / "study"))
    assert [(g["label"], len(g["runs"])) for g in data["groups"]] == [("fedavg", 2), ("fedgsp", 2)]
    assert len(data["federations"]) == 1 or len({json.dumps(f["counts"]) for f in data["federations"]}) == len(
        data["federations"]
    )


def test_a_run_without_clients_facts_or_rounds_still_has_a_page(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", rounds=3)
    for name in ("clients.safetensors", "scores.jsonl"):
        (run / name).unlink()
    body = data_of(page_of(run))["runs"][0]
    assert (body["federation"], body["scores"], body["costs"]) == (None, None, {})
    begun = fake_runs.write_run(tmp_path / "begun", rounds=0, status=None)
    assert data_of(page_of(begun))["runs"][0]["status"] == "stopped"


def test_places_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a directory"):
        read_runs([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no run in"):
        read_runs([tmp_path / "empty"])


def test_the_page_is_written_whole_and_where_one_expects_it(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run")
    assert default_place([run]) == run / "report.html"
    assert default_place([run, tmp_path]) == Path("report.html")
    out = write_report(read_runs([run]), tmp_path / "deep" / "page.html", "A <title>")
    assert '<h1 id="title">A &lt;title&gt;</h1>' in out.read_text()
    assert fedgsp.make_report(run) == run / "report.html"
    assert '<h1 id="title">fedgsp, seed 0</h1>' in (run / "report.html").read_text()
    with pytest.raises(InputError, match="cannot be written"):
        write_report(read_runs([run]), run / "config.toml" / "page.html")


def test_numbers_are_packed_in_the_smallest_type() -> None:
    assert unpacked(packed(np.array([0, 255]))) == [0, 255]
    assert packed(np.array([0, 255]))["bytes"] == 1
    assert packed(np.array([0, 65535]))["bytes"] == 2
    assert packed(np.array([70000]))["bytes"] == 4
    scores = packed_scores(np.array([0.5, np.nan, 1.0]))
    assert [v / scores["scale"] for v in unpacked(scores)[:3:2]] == [0.5, 1.0]
    assert unpacked(scores)[1] == 65535
    assert rounded([1.23456789, None, float("nan"), 7]) == [1.2346, None, None, 7]
