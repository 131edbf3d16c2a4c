"""Models, tasks and local rules of the user's own on one batch: mistakes are told before anything is written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedgsp
from tests.support import tiny
from tests.support import wrong_parts as m
from tests.support.wrong_parts import BASE, HERE, refused, run

LOSS = fedgsp.classification().loss


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("one value", r"'objective' gave one value \(a tensor of shape \(\)\); it must give two: what is minimised"),
        ("three values", "'objective' gave 3 values; it must give two"),
        ("a list", r"'objective' gave one value \(list\)"),
        ("nothing", r"'objective' gave one value \(NoneType\)"),
        ("not reduced", r"'objective' gave first value a tensor of shape \(5,\); it must give a mean over the batch"),
        ("reported not reduced", "'objective' gave second value a tensor of shape"),
        ("reported float", "'objective' gave second value float"),
        ("detached", "'objective' gave first value without a gradient; .* leave out detach"),
        ("finish gives nothing", r"'finish' gave NoneType; .* super\(\)"),
        ("tensor metric", "'finish' gave dict; it must give a dict of numbers by name"),
        ("metrics forgotten", "'finish' gave no 'accuracy'; it must give all that 'reports' names"),
        ("no optimizer", "'optimizer' gave something else; it must give a torch.optim.Optimizer"),
        ("keeps a list", "'initial_client_state' gave list; it must give a dict of tensors"),
        ("state lost", "ctx.state after 'finish' has no tensor 'memory', which 'initial_client_state' has"),
        ("nothing sent", "ctx.sent after 'finish' has no tensor 'news', which 'upload_spec' has"),
    ],
)
def test_hooks_of_a_local_rule(how: str, told: str, tmp_path: Path) -> None:
    rule = m.MyLocal(how=how, report_accuracy=how == "metrics forgotten")
    found = refused(replace(BASE, local=rule), tmp_path / "run")
    assert re.match(f"the local rule MyLocal{HERE}: {told}", found), found


def test_a_hook_that_raises(tmp_path: Path) -> None:
    found = refused(replace(BASE, local=m.MyLocal(how="raises")), tmp_path / "run")
    told = rf"the local rule MyLocal{HERE} failed on its first batch: AttributeError: .* \(wrong_parts\.py:\d+, in objective\)"
    assert re.match(told, found), found


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("a vector", r"'loss_term' gave a tensor of shape \(5,\); it must give a mean over the batch"),
        ("a float", "'loss_term' gave float; it must give a mean over the batch"),
        ("detached", "'loss_term' gave something without a gradient"),
        ("looks elsewhere", "'looks_at' gave 'outputs'; it must give one of 'loss', 'logits', 'features'"),
        ("pull of floats", "'gradient_term' gave float; it must give a fedgsp.client.GradientTerm, or None"),
        ("half a pull", "'gradient_term' gave a reference that does not fit the parameter 'bias'"),
    ],
)
def test_terms_of_a_local_rule(how: str, told: str, tmp_path: Path) -> None:
    found = refused(replace(BASE, local=m.MyTerm(how=how)), tmp_path / "run")
    assert re.match(f"the local rule MyTerm{HERE}: {told}", found), found


@pytest.mark.parametrize(
    "rule", [m.MyLocal(), m.MyLocal(how="initial_client_state"), m.MyLocal(report_accuracy=True), m.MyTerm()]
)
def test_rules_that_are_right_train_and_resume(rule: Any, tmp_path: Path) -> None:
    method = replace(BASE, local=rule)
    run(method, tmp_path / "run")
    longer = fedgsp.resume(tmp_path / "run", method=method, data=m.DATA, model=tiny.linear, rounds=4, workers=0)
    assert longer.state.digest() == run(method, rounds=4).state.digest()


def test_the_trial_draws_nothing_and_moves_no_bit() -> None:
    own = run(replace(BASE, local=m.MyLocal(lr=0.05, batch_size=3)), fast="off").state.model
    assert tiny.bits(own) == tiny.bits(run(BASE, fast="off").state.model)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(replace(BASE, local=m.MyLocal()))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (m.MyNet("detached"), rf"MyNet{HERE}, gives outputs \(float32\) that no gradient leads through"),
        (m.MyNet("classes"), rf"MyNet{HERE}, does not fit the data"),
        (m.MyNet("whole"), rf"MyNet{HERE}, does not fit the data"),
        (m.MyNet("tuple"), rf"MyNet{HERE}, gives tuple, and not a tensor of outputs; pick the tensor in 'forward'"),
        (m.MyNet("dict"), rf"MyNet{HERE}, gives dict, and not a tensor of outputs"),
        (m.MyNet("nothing"), rf"MyNet{HERE}, gives NoneType, and not a tensor of outputs"),
        (m.MyNet("too wide"), rf"MyNet{HERE}, gives outputs of shape \(6,\) a sample; the data has 3 classes"),
        (m.MyNet("flat"), rf"MyNet{HERE}, does not fit the data"),
        (m.NeedyNet, "the model 'tests.support.wrong_parts:NeedyNet' cannot be built for this data: .*'hidden'"),
        (lambda: 3, "returned int, not an nn.Module"),
        (lambda: nn.Linear(5, 3), "does not fit the data"),
        (lambda: nn.Linear(4, 3).double(), "does not fit the data"),
        (3, "a model is a name, a callable or an nn.Module, not int"),
    ],
)
def test_models(model: Any, told: str, tmp_path: Path) -> None:
    found = refused(BASE, tmp_path / "run", model=model)
    assert re.search(told, found), found


def task(loss: Any, **metrics: Any) -> fedgsp.Task:
    return fedgsp.Task("t", loss, metrics)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (fedgsp.Task, "the task is Task, not a fedgsp.Task; call it"),
        (fedgsp.classification, "the task is classification, not a fedgsp.Task; call it"),
        ("classification", "the task is str, not a fedgsp.Task"),
        (task(3), "the task 't': loss is int, not a function of outputs and targets"),
        (task(LOSS, a=None), "the task 't': a is NoneType, not a function"),
        (task(cross_entropy), r"loss, cross_entropy, must give one value a sample, shape \(2,\), not \(\)"),
        (task(lambda out, y: 0.5), r"loss, <lambda> \(.*batch\.py:\d+\), must give one value a sample, .*, not float"),
        (task(lambda out, y: (out.argmax(1) != y).float()), r"loss, <lambda> \(.*batch\.py:\d+\), cannot be differentiated"),
        (task(LOSS, a=lambda out, y: (out.argmax(1) == y).float().mean()), r"metric 'a', <lambda> \(.*\), must give one value"),
        (task(LOSS, a=lambda out, y: out.nothing), r"metric 'a', <lambda> \(.*\), failed on the first batch: AttributeError"),
    ],
)
def test_tasks(given: Any, told: str, tmp_path: Path) -> None:
    found = refused(BASE, tmp_path / "run", task=given)
    assert re.search(told, found), found
