"""Whatever the command line does is a function, for methods, models, tasks and data of one's own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD, LocalContext
from tests.support import tiny

DATA = tiny.federation()


@dataclass(frozen=True, kw_only=True)
class Clipped(SGD):
    most: float = 1.0

    def adjust(self, ctx: LocalContext) -> None:
        torch.nn.utils.clip_grad_norm_(ctx.model.parameters(), self.most)


METHOD = replace(fedgsp.named("fedavg"), local=Clipped(lr=0.3, most=0.5), name="clipped")
TASK = fedgsp.Task(
    "margin",
    loss=lambda out, y: nn.functional.multi_margin_loss(out, y, reduction="none"),
    metrics={"right": lambda out, y: (out.argmax(1) == y).float()},
    score="right",
)


def trained(method: Any = "fedavg", **options: Any) -> fedgsp.RunResult:
    return fedgsp.train(method, DATA, tiny.linear, **{"rounds": 2, "workers": 0, "lr": 0.3, **options})


def test_every_command_is_a_public_name_and_importing_fedgsp_imports_no_torch() -> None:
    names = [
        "train", "resume", "replay", "evaluate", "compare", "tune", "sweep", "group", "inspect", "cost", "advise", "report",
        "study", "new",
    ]  # fmt: skip
    assert set(names) <= set(dir(fedgsp)) == set(fedgsp.__all__)
    assert all(callable(getattr(fedgsp, name)) for name in names)
    code = "import sys, fedgsp; dir(fedgsp); fedgsp.report; fedgsp.study; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class TestCompare:
    def test_names_methods_files_and_imports_with_a_task_of_ones_own(self, tmp_path: Path) -> None:
        file = tmp_path / "my_rule.toml"
        file.write_text('[method]\nname = "fedavg"\n[method.local]\nkind = "prox"\nlr = 0.2\nmu = 0.5\n')

        @dataclass(frozen=True, kw_only=True)
        class Local(SGD):  # a class that no config file can name
            pass

        mine = fedgsp.Method(fedgsp.named("fedavg").planner, Local(lr=0.1), fedgsp.named("fedavg").server, name="mine")
        found = fedgsp.compare(
            "fedavg", str(file), "tests.test_parity:METHOD", mine,
            data=DATA, model=tiny.linear, task=TASK, rounds=2, seeds=2, workers=0,
        )  # fmt: skip
        assert list(found.scores) == ["fedavg", "my_rule", "clipped", "mine"]
        assert found.score_name == "right"
        assert all(sorted(seeds) == [0, 1] for seeds in found.scores.values())
        alone = fedgsp.train(mine, DATA, tiny.linear, task=TASK, rounds=2, seed=1, workers=0)
        assert found.scores["mine"][1] == alone.score
        assert found.best in found.scores
        assert [row["method"] for row in found.rows] == list(found.scores)
        assert found.directory is None
        assert "noise" in found.notes[-1]

    def test_finished_runs_of_data_in_memory_beside_a_method(self, tmp_path: Path) -> None:
        kept, held = trained("fedgsp", out=tmp_path / "run"), trained(METHOD, lr=None)
        found = fedgsp.compare(kept, held)
        assert {name: seeds[0] for name, seeds in found.scores.items()} == {"fedgsp": kept.score, "clipped": held.score}
        beside = fedgsp.compare("fedavg", held, seeds=1, workers=0, lr=0.3)
        assert beside.scores["fedavg"][0] == trained().score
        assert beside.scores["clipped"][0] == held.score

    def test_the_same_run_kept_and_in_memory_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(fedgsp.InputError, match="repeats another of the runs"):
            fedgsp.compare(trained(out=tmp_path / "run"), trained())

    def test_a_run_on_other_data_is_refused_beside_a_method(self) -> None:
        other = fedgsp.train("fedavg", tiny.federation(seed=3), tiny.linear, rounds=1, workers=0)
        with pytest.raises(fedgsp.InputError, match="was not run on the data of this comparison"):
            fedgsp.compare("fedgsp", other, data=DATA, model=tiny.linear, seeds=1, workers=0)

    def test_a_rule_that_was_changed_is_run_anew_and_one_that_was_not_is_read(self, tmp_path: Path) -> None:
        def rule(scale: float) -> SGD:
            if scale == 1.0:

                @dataclass(frozen=True, kw_only=True)
                class Mine(SGD):
                    def adjust(self, ctx: LocalContext) -> None:
                        pass
            else:

                @dataclass(frozen=True, kw_only=True)
                class Mine(SGD):  # type: ignore[no-redef]
                    def adjust(self, ctx: LocalContext) -> None:
                        for parameter in ctx.model.parameters():
                            parameter.grad = None

            return Mine(lr=0.3)

        def score(scale: float) -> float:
            method = replace(fedgsp.named("fedavg"), local=rule(scale), name="mine")
            found = fedgsp.compare(method, data=DATA, model=tiny.linear, rounds=1, seeds=1, workers=0, out=tmp_path)
            return found.entrants[0].traces[0].history[-1]["loss"]  # type: ignore[no-any-return]

        first = score(1.0)
        assert score(1.0) == first
        assert len(list((tmp_path / "units").glob("mine-*"))) == 1
        assert score(0.0) != first
        assert len(list((tmp_path / "units").glob("mine-*"))) == 2

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ((), "there is nothing to compare"),
            (("fedavgg",), "did you mean 'fedavg'"),
            (("tests.test_parity:TASK",), "is no fedgsp.Method"),
            ((SGD,), "not the class SGD"),
            (("no/such/place",), "there is no run directory"),
        ],
    )
    def test_what_is_no_method_is_refused(self, given: tuple[Any, ...], told: str) -> None:
        with pytest.raises(fedgsp.InputError, match=told):
            fedgsp.compare(*given, data=DATA, model=tiny.linear, rounds=1, seeds=1, workers=0)


def test_a_method_with_a_rule_of_a_notebook_is_tuned_over_its_own_parameters() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(SGD):
        slow: float = 1.0

        def adjust(self, ctx: LocalContext) -> None:
            for parameter in ctx.model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= self.slow

    method = replace(fedgsp.named("fedavg"), local=Mine(lr=0.3), name="mine")
    found = fedgsp.tune(method, {"slow": [0.0, 1.0]}, data=DATA, model=tiny.linear, rounds=3, validation=0.3, workers=0)
    assert isinstance(found.method.local, Mine)
    assert found.best.point.values == {"slow": 1.0}
    assert found.method.local.slow == 1.0
    assert [row["slow"] for row in found.rows] == [0.0, 1.0]
    again = fedgsp.tune(trained(), ["lr=0.001,0.3"], rounds=3, validation=0.3, workers=0)
    assert again.method.local.lr == 0.3


def test_evaluate_gives_the_figures_of_the_last_round(tmp_path: Path) -> None:
    result = trained(out=tmp_path / "run")
    for run, given in ((result, None), (tmp_path / "run", DATA)):
        found = fedgsp.evaluate(run, given, model=None if run is result else tiny.linear)
        assert found.score == result.history[-1]["accuracy"]
        assert found.score_name == "accuracy"
        assert [row["client"] for row in found.per_client] == list(DATA.clients)
    other = fedgsp.evaluate(result, tiny.federation(clients=3, seed=5), part="all")
    assert len(other.per_client) == 3
    with pytest.raises(fedgsp.InputError, match="data in memory; give it again"):
        fedgsp.evaluate(tmp_path / "run")


def test_cost_and_report_need_neither_data_nor_code(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Local(SGD):
        pass

    result = trained(replace(fedgsp.named("fedgsp"), local=Local(lr=0.1), name="mine"), out=tmp_path / "run", lr=None)
    costs = fedgsp.cost(result, tmp_path / "run", fleet="phone-4g")
    assert costs.runs[0] == costs.runs[1]
    assert costs.runs[0]["visits"] == sum(entry["clients"] for entry in result.history)
    assert costs.runs[0]["paper"]["traffic"] > 0
    assert fedgsp.report(result, title="Mine").read_text().count("Mine") > 0
    with pytest.raises(fedgsp.InputError, match=r"train it with `out=\.\.\.`"):
        fedgsp.cost(trained())


def test_group_takes_a_federation_counts_and_a_grouper() -> None:
    from fedgsp.plan import ICG

    found = fedgsp.group(DATA, 4, grouper=ICG(tau=3), seed=1)
    assert found.grouper == "icg"
    assert list(found.assignment) == list(DATA.clients)
    assert (found.labels == ICG(n_groups=4, random_state=1, tau=3).fit(DATA.profiles().counts).labels_).all()
    spread = fedgsp.group([[1, 0], [0, 1], [1, 0], [0, 1]], 2, one_per_site=True, sites=["a", "a", "b", "b"])
    assert spread.labels[0] != spread.labels[1]


def test_notes_reach_python_as_warnings_at_the_callers_line() -> None:
    with pytest.warns(fedgsp.RunWarning, match="no two clients ever train in a chain") as told:
        result = trained("fedgsp", rounds=60, eval_every=60, epochs=1)
    ours = [warning for warning in told if issubclass(warning.category, fedgsp.RunWarning)]
    assert {Path(warning.filename).name for warning in ours} == {"test_parity.py"}
    assert any("no two clients ever train in a chain" in note for note in result.notes)


class TestErrorsSpeakPython:
    def test_no_option_of_the_command_line_in_an_exception(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(fedgsp.InputError, match="choose another place with `out=`"):
            trained(out=tmp_path)
        with pytest.raises(fedgsp.InputError, match="`engine='ray'` needs workers"):
            trained(engine="ray")

    def test_a_run_resumed_with_another_learning_rate_names_it(self, tmp_path: Path) -> None:
        trained(out=tmp_path / "run")
        given: dict[str, Any] = {"data": DATA, "model": tiny.linear, "rounds": 3, "workers": 0}
        other = replace(fedgsp.named("fedavg"), local=SGD(lr=0.7))
        with pytest.raises(fedgsp.InputError, match=r"\(method\.local\.lr is 0\.7 and was 0\.3\)"):
            fedgsp.resume(tmp_path / "run", method=other, **given)
        file = tmp_path / "run" / "config.toml"
        file.write_text(file.read_text().replace("seed = 0", "seed = 5", 1))
        with pytest.raises(fedgsp.InputError, match=r"run\.seed is 5 and was 0"):
            fedgsp.resume(tmp_path / "run", **given)


def test_a_config_file_is_run_with_entries_changed(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[run]\nrounds = 5\nworkers = 0\n[method]\nname = "fedavg"\n[method.local]\nkind = "sgd"\nlr = 0.2\n')
    result = fedgsp.run(file, sets={"run.rounds": 2, "method.local.lr": 0.3}, data=DATA, model=tiny.linear)
    assert result.state.digest() == trained().state.digest()
    again = fedgsp.run(result.run.config, sets=["run.rounds=1"], data=DATA, model=tiny.linear, out=tmp_path / "run")
    assert again.rounds == 1
    assert fedgsp.resume(tmp_path / "run", rounds=2, data=DATA, model=tiny.linear).state.digest() == result.state.digest()
    with pytest.raises(fedgsp.InputError, match="there is nothing called"):
        fedgsp.run(file, sets={"nowhere.lr": 1})


def test_a_method_of_a_module_or_a_file_is_trained_by_its_name(tmp_path: Path) -> None:
    from fedgsp.cli.options import build_config

    mine = trained("tests.test_parity:METHOD", lr=None)
    assert mine.state.digest() == trained(METHOD, lr=None).state.digest()
    assert build_config(None, {"method": "tests.test_parity:METHOD"}).method == METHOD
    (tmp_path / "mine.toml").write_text('[method]\nname = "fedavg"\n')
    assert trained(tmp_path / "mine.toml").state.digest() == trained().state.digest()


def test_a_sweep_compares_a_method_with_itself_on_test_samples() -> None:
    found = fedgsp.sweep("fedavg", {"lr": [0.001, 0.3]}, data=DATA, model=tiny.linear, rounds=2, seeds=1, workers=0)
    assert list(found.scores) == ["lr=0.001", "lr=0.3"]
    assert found.scores["lr=0.3"][0] == trained().score
    assert "to choose a value, use tune" in found.notes[-1]
    with pytest.raises(fedgsp.InputError, match="not a range"):
        fedgsp.sweep("fedavg", {"lr": fedgsp.Range(0.1, 1)}, data=DATA)


def test_advice_for_a_model_of_ones_own_shows_itself() -> None:
    advice = fedgsp.advise(DATA, "phone-4g", model=tiny.linear)
    assert advice.method.name == advice.best[0].name
    assert len(repr(advice).splitlines()) <= 10
    assert advice._repr_html_().count("<table") == 1
    with pytest.raises(fedgsp.InputError, match="unknown fleet 'phones'"):
        fedgsp.advise(DATA, "phones")


def test_the_models_that_fit_say_what_goes_in_and_out() -> None:
    found = fedgsp.models(DATA)
    assert found.names == ["linear", "mlp"]
    assert found.fitting is not None
    assert [(one.shape, one.outputs) for one in found.fitting] == [((4,), 3)] * 2
    assert "4         3" in repr(found)
    assert set(found.names) < set(fedgsp.models().names)
    assert len(repr(fedgsp.METHODS).splitlines()) == 1
    assert "fedgsp" in fedgsp.METHODS._repr_html_()  # type: ignore[attr-defined]


def test_a_worker_that_was_lost_is_among_the_notes() -> None:
    from fedgsp.engine.messages import WorkerLost
    from fedgsp.run.warner import Warner

    warner = Warner()
    with pytest.warns(fedgsp.RunWarning, match="chain 1 is run again"):
        warner.on_failure(WorkerLost(2, 1, None, "it died"))
    result = replace(trained(), happened=tuple(warner.told))
    assert result.notes[-1] == "round 2: chain 1 is run again: it died"
