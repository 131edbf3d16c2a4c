from __future__ import annotations

import pytest
import torch

from fedgsp.core.chain import Chain, ChainResult, Hop, HopReport, Plan


def hop(client: int, samples: int, *, at: int = 0, visit: int = 0, steps: int = 1, down: int = 10, up: int = 7) -> HopReport:
    return HopReport(client, at, visit, samples, steps, down, up, 0.0)


def result(*hops: HopReport) -> ChainResult:
    return ChainResult(0, Chain((1, 2, 3)), {"w": torch.zeros(1)}, hops)


def test_a_chain_is_walked_in_order() -> None:
    assert list(Chain((5, 3, 9)).hops()) == [Hop(0, 5, 0), Hop(1, 3, 0), Hop(2, 9, 0)]


def test_passes_walk_the_whole_chain_again_and_hops_go_on_counting() -> None:
    chain = Chain((4, 8), passes=3)
    assert list(chain.hops()) == [Hop(0, 4, 0), Hop(1, 8, 0), Hop(2, 4, 1), Hop(3, 8, 1), Hop(4, 4, 2), Hop(5, 8, 2)]
    assert len(chain) == 6


def test_a_chain_starts_from_the_global_model_and_is_walked_once_unless_told_otherwise() -> None:
    assert Chain((1,)).start == "global"
    assert Chain((1,)).passes == 1


@pytest.mark.parametrize(("clients", "passes"), [((), 1), ((1,), 0)])
def test_a_chain_of_nobody_or_never_walked_is_refused(clients: tuple[int, ...], passes: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        Chain(clients, passes=passes)


def test_a_plan_lists_its_clients_chain_by_chain() -> None:
    assert Plan(1, (Chain((3, 1)), Chain((2,))), groups=5).clients == (3, 1, 2)


def test_samples_count_once_per_client_however_often_the_chain_is_walked() -> None:
    walked_twice = result(hop(1, 10), hop(2, 20, at=1), hop(1, 10, at=2, visit=1), hop(2, 20, at=3, visit=1))
    assert walked_twice.samples == 30


def test_a_client_that_was_there_only_for_one_pass_still_counts() -> None:
    assert result(hop(1, 0), hop(1, 10, at=1, visit=1)).samples == 10


def test_equal_sizes_of_different_clients_all_count() -> None:
    assert result(hop(1, 10), hop(2, 10), hop(3, 10)).samples == 30


def test_steps_and_bytes_add_up_over_all_hops() -> None:
    walked_twice = result(hop(1, 10, steps=2), hop(2, 20, steps=4), hop(1, 10, visit=1, steps=2))
    assert walked_twice.steps == 8
    assert walked_twice.bytes_moved == 3 * 17
