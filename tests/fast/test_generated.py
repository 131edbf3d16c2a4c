"""Whatever model and rule one brings: the fast path agrees with plain steps after two rounds, or says why it is not taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedgsp
from fedgsp.core.errors import FedgspError
from fedgsp.core.native import Library
from fedgsp.core.tensors import Tensors
from fedgsp.fast import Mode
from fedgsp.fast.build import library
from tests.sampling import examples
from tests.support.generated_models import RULES, Recipe, method, recipes, samples

needs_compiler = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")
CLOSE = 1e-3
"""Of the largest change after two rounds, which amplify rounding; a wrong model is a tenth away."""
SHAKY = {"mmd": 0.05}
"""MMD's narrowest kernel (variance 1e-6) amplifies rounding by itself, in plain steps, too (docs/methods.md)."""


def ended(recipe: Recipe, rule: str, batch_size: int, lr: float, fast: Mode) -> tuple[Tensors, str, str] | str:
    """(the model after two rounds, its kernel, why) or the sentence that refuses it."""
    try:
        run = fedgsp.train(
            method(rule, batch_size, lr), samples(recipe.shape, recipe.seed), recipe.build, rounds=2, workers=0, fast=fast
        )
    except FedgspError as error:
        return str(error)
    kernel = run.run.worker_setup.kernel
    return run.state.model, kernel.name, kernel.why


def check(recipe: Recipe, rule: str, batch_size: int, lr: float) -> str:
    """The kernel's name, or why there was none, after comparing."""
    auto, off = (ended(recipe, rule, batch_size, lr, mode) for mode in ("auto", "off"))
    if isinstance(off, str):
        assert auto == off, "what plain steps refuse is refused in the same words"
        return "refused"
    assert not isinstance(auto, str), auto
    if auto[1] == "plain":
        assert auto[2], "declined without a reason"
        assert all(torch.equal(auto[0][n], t) or bool(t.isnan().any()) for n, t in off[0].items())
        return auto[2]
    start = recipe.build().state_dict()
    change = max(float((t - start[n]).abs().max()) for n, t in off[0].items() if t.is_floating_point() and n in start)
    for name, tensor in off[0].items():
        if tensor.is_floating_point():
            allowed = SHAKY.get(rule, CLOSE) * change + 1e-6 * float(tensor.abs().max())
            assert float((tensor - auto[0][name]).abs().max()) <= allowed, (name, auto[1])
    return auto[1]


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(recipes(), st.sampled_from(sorted(RULES)), st.sampled_from([1, 2, 4, 7, 40]), st.sampled_from([0.001, 0.05, 0.3]))
def test_auto_and_off_agree_or_auto_says_why_not(recipe: Recipe, rule: str, batch_size: int, lr: float) -> None:
    check(recipe, rule, batch_size, lr)


@pytest.mark.slow
@settings(max_examples=examples(250, of=2000), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(recipes(), st.sampled_from(sorted(RULES)), st.sampled_from([1, 2, 4, 7, 40]), st.sampled_from([0.001, 0.05, 0.3]))
def test_thousands_of_them(recipe: Recipe, rule: str, batch_size: int, lr: float) -> None:
    check(recipe, rule, batch_size, lr)


@needs_compiler
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    recipes(),
    st.sampled_from(["sgd", "decay", "prox", "scaffold", "squared", "drop last", "merge last"]),
    st.sampled_from([1, 4]),
)
def test_what_is_plain_in_every_way_is_compiled(recipe: Recipe, rule: str, batch_size: int) -> None:
    """Or the tests above would pass with a fast path that is never taken."""
    from dataclasses import replace

    convolutions = tuple((c, k, p, pool, 1) for c, k, p, pool, _ in recipe.convolutions[:1])
    plain = replace(
        recipe,
        convolutions=convolutions,
        activation="relu",
        norm="none",
        between="nothing",
        prepare="nothing",
        hook="none",
        odd="none",
    )
    assert check(plain, rule, batch_size, 0.05).startswith("c-")
