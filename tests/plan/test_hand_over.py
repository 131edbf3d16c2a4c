"""The planner `hand-over`: who is never next to whom, and how many are in a model that is handed on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.client import SGD, Prox
from fedgsp.client.client_state import ClientStates
from fedgsp.core.blend import blended
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError, RunFailed
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import clone, digest
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.methods import decode_method
from fedgsp.models import classification, resolve
from fedgsp.models.catalog import initial_tensors
from fedgsp.plan import HandOver, Mediators, OneChain
from fedgsp.plan.hand_over import kept_apart
from tests.support import tiny

APART = ((0, 1), (2, 3), (0, 5), (4, 7))


def guarded(least: int = 1, groups: int = 2, apart: tuple[tuple[int, int], ...] = APART) -> fedgsp.Method:
    base = tiny.static(groups)
    return replace(base, planner=HandOver(base.planner, apart, least))


def neighbours(chain: tuple[int, ...], closed: bool) -> set[frozenset[int]]:
    around = [(chain[-1], chain[0])] if closed and len(chain) > 1 else []
    return {frozenset(pair) for pair in (*pairwise(chain), *around)}


class TestApart:
    def test_plans_keep_clients_and_lengths_and_the_pairs_apart_in_every_round(self) -> None:
        planner, plain = guarded().planner, tiny.static(2).planner
        profiles, seeds, moved = tiny.federation(8).profiles(), Seeds(3), 0
        for round_ in range(1, 30):
            plan, before = planner.plan(round_, profiles, seeds), plain.plan(round_, profiles, seeds)
            assert [len(chain) for chain in plan.chains] == [len(chain) for chain in before.chains]
            assert sorted(plan.clients) == sorted(before.clients)
            assert not any(neighbours(chain.clients, False) & set(map(frozenset, APART)) for chain in plan.chains)
            moved += plan.clients != before.clients
            assert plan == planner.plan(round_, profiles, seeds)
        assert 0 < moved < 29  # who is not next to one it must not be stays

    def test_against_all_orders_of_small_plans(self) -> None:
        """Wherever some order of all clients is right, one is found; where none is, none is."""
        rng, found = np.random.default_rng(0), 0
        for _ in range(150):
            sizes = [(2, 2), (3, 2), (4,), (1, 3), (5,)][int(rng.integers(5))]
            clients = rng.permutation(sum(sizes)).tolist()
            pairs = {tuple(sorted(rng.choice(len(clients), 2, replace=False).tolist())) for _ in range(int(rng.integers(1, 4)))}
            closed, wrong = bool(rng.integers(2)), {frozenset(pair) for pair in pairs}
            cuts = np.cumsum((0, *sizes)).tolist()

            def cut(order: tuple[int, ...], cuts: list[int] = cuts) -> list[tuple[int, ...]]:
                return [tuple(order[a:b]) for a, b in pairwise(cuts)]

            def right(chains: list[tuple[int, ...]], closed: bool = closed, wrong: set[frozenset[int]] = wrong) -> bool:
                return not any(neighbours(chain, closed) & wrong for chain in chains)

            made = kept_apart(cut(tuple(clients)), [closed] * len(sizes), tuple(pairs))
            assert (made is not None) == any(right(cut(order)) for order in permutations(clients))
            if made is not None:
                found += 1
                assert right(made)
                assert [len(chain) for chain in made] == list(sizes)
        assert 75 < found < 150

    def test_chains_that_are_walked_again_hand_on_from_the_last_to_the_first(self) -> None:
        planner = HandOver(Mediators(kappa=1.0, gamma=4, passes=2), APART)
        for round_ in range(1, 20):
            plan = planner.plan(round_, tiny.federation(8).profiles(), Seeds(1))
            assert not any(neighbours(chain.clients, True) & set(map(frozenset, APART)) for chain in plan.chains)

    def test_what_cannot_be_is_said(self) -> None:
        method = replace(tiny.static(1), planner=HandOver(OneChain(), ((0, 1),)))
        with pytest.raises(RunFailed, match=r"cannot be in round 1: no exchange of places in its 1 chains"):
            fedgsp.train(method, tiny.federation(2), tiny.linear, rounds=1, workers=0)

    @pytest.mark.parametrize(
        ("wrong", "sentence"),
        [
            ({"apart": ((1, 1),)}, "pairs of two clients"),
            ({"apart": ((1, -2),)}, "at least 0"),
            ({"least": 0}, "at least 1"),
        ],
    )
    def test_parameters_that_make_no_sense_are_refused(self, wrong: dict[str, object], sentence: str) -> None:
        with pytest.raises(InputError, match=sentence):
            HandOver(**wrong)  # type: ignore[arg-type]

    def test_it_is_spelled_in_a_config_file(self) -> None:
        planner = {"kind": "hand-over", "apart": [[0, 3]], "least": 2, "planner": {"kind": "one-chain"}}
        made = decode_method({"name": "fedgsp", "planner": planner})
        assert made.planner == HandOver(OneChain(), ((0, 3),), 2)
        assert decode_method(made.encode()) == made


class TestLeast:
    def test_a_mean_by_hand(self) -> None:
        values = ((1.0, 3), (4.0, 6), (7.0, 9))
        one, two, three = ({"w": torch.tensor([w, -torch.inf]), "n": torch.tensor(n)} for w, n in values)
        mean = blended(blended(blended({}, one, 1), two, 2), three, 3)
        assert mean["w"].tolist() == [4.0, -float("inf")]
        assert mean["n"].item() == 5  # 3, then 4 (of 4.5), then 5 (of 5.67)

    def test_the_first_two_begin_with_the_rounds_model_and_the_third_with_their_mean(self) -> None:
        data, chain = tiny.federation(4), Chain((2, 0, 3), least=2)
        model = resolve(tiny.linear, data.sample_shape, data.classes)
        runner = ChainRunner.of(WorkerSetup(model, SGD(lr=0.1, batch_size=3), classification(), data, Seeds(5)))
        start = initial_tensors(model, 1)
        whole = clone(runner.run(1, chain, start, {})[0])
        one, two = (clone(runner.run(1, chain, start, {}, frozenset({0, 1, 2}) - {hop})[0]) for hop in (0, 1))
        mean = blended(blended({}, one, 1), two, 2)
        for _ in runner.hops(1, Chain((2, 0, 3)), start, {}, frozenset({0, 1}), lambda client: None, ClientStates(), mean):
            pass
        assert digest(runner.trainer.tensors()) == digest(whole)
        skipped = clone(runner.run(1, chain, start, {}, frozenset({1}))[0])  # then the third begins with it too
        three = clone(runner.run(1, chain, start, {}, frozenset({0, 1}))[0])
        assert digest(skipped) == digest(blended(one, three, 2))

    def test_the_same_bits_with_workers_after_a_resume_and_in_a_replay(self, tmp_path: Path) -> None:
        source = str(tiny.write_npz(tmp_path / "data.npz"))
        method = replace(guarded(3), local=Prox(lr=0.05, batch_size=3, mu=0.1))  # which fetches the round's model
        whole = fedgsp.train(method, source, tiny.LINEAR, rounds=3, workers=0, out=tmp_path / "whole", fast="off")
        spread = fedgsp.train(method, source, tiny.LINEAR, rounds=3, workers=2, fast="off")
        assert spread.state.digest() == whole.state.digest()
        fedgsp.train(method, source, tiny.LINEAR, rounds=1, workers=0, out=tmp_path / "cut", fast="off")
        assert fedgsp.resume(tmp_path / "cut", rounds=3, workers=0).state.digest() == whole.state.digest()
        assert fedgsp.replay(tmp_path / "whole", workers=0).differs is None

    def test_chains_that_are_walked_again_are_refused(self) -> None:
        planner = HandOver(Mediators(kappa=1.0, gamma=4, passes=2), least=2)
        with pytest.raises(InputError, match="walked once"):
            planner.plan(1, tiny.federation(8).profiles(), Seeds(1))


def test_profiles_are_not_looked_at() -> None:
    counts = np.zeros((4, 3), dtype=np.int64)
    profiles = Profiles(np.arange(4), counts, np.ones(4, dtype=np.int64))
    assert HandOver(OneChain(), ((0, 1),)).plan(1, profiles, Seeds(0)).apart == {frozenset((0, 1))}
