"""What goes over the wire, and what is believed of what comes."""

from __future__ import annotations

import json
import math
import tracemalloc
import zlib
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.tensors import Tensors, digest, rounded, wire_bytes
from fedgsp.engine.transports.flower.adaptive_limit import AdaptiveTimeLimit
from fedgsp.engine.transports.flower.records import (
    FLAT,
    SQUEEZED,
    heard,
    pack,
    payload,
    restore,
    say,
    squeeze,
    unpack,
    unpack_like,
)
from fedgsp.engine.transports.flower.update_guard import (
    BESIDE,
    BUFFERS,
    UPDATE,
    UpdateGuard,
    buffers_moved,
    check_size,
    moved,
)
from fedgsp.engine.transports.flower.wire import HEAD, Refused, places


def model() -> Tensors:
    return {
        "w": torch.tensor([[1.0, -2.5], [3.25e-8, 4.0]]), "n": torch.tensor(7), "b": torch.tensor([True, False]),
        "d": torch.tensor([1 / 3], dtype=torch.float64), "none": torch.empty(0, 3),
    }  # fmt: skip


def _record(data: bytes) -> ArrayRecord:
    return ArrayRecord({FLAT: Array("uint8", (len(data),), FLAT, data)})


class TestRecords:
    def test_tensors_come_back_to_the_bit(self) -> None:
        assert digest(unpack_like(pack(model()), model(), "float32", "x")) == digest(model())

    @pytest.mark.parametrize("wire", ["float16", "bfloat16"])
    def test_half_the_bytes_come_back_rounded_as_a_replay_rounds(self, wire: str) -> None:
        packed = pack(model(), wire)  # type: ignore[arg-type]
        found = unpack_like(packed, model(), wire, "x")  # type: ignore[arg-type]
        assert digest(found) == digest(rounded(model(), wire))  # type: ignore[arg-type]
        assert payload(packed) == wire_bytes(model(), wire)  # type: ignore[arg-type]
        kinds = {place.name: place.type for place in places(packed[FLAT].data)}
        assert kinds == {"w": wire, "n": "int64", "b": "bool", "d": wire, "none": wire}
        assert digest(rounded(found, wire)) == digest(found)  # type: ignore[arg-type]

    def test_no_pickle_is_ever_looked_at(self) -> None:
        record = ArrayRecord({"w": Array("object", (1,), "pickle", b"\x80\x04N.")})
        with pytest.raises(Refused, match="unknown kind 'pickle object'"):
            unpack(record, "it")

    def test_a_model_is_one_array_and_nothing_is_none(self) -> None:
        assert list(pack(model())) == [FLAT]
        assert len(pack({})) == 0
        assert unpack(pack({}), "it") == {}
        assert set(say({}, model=pack(model()), shared=pack({}))) == {"fedgsp", "model"}

    def test_the_record_by_hand(self) -> None:
        data = pack({"a": torch.tensor([1, 2], dtype=torch.int16), "b": torch.tensor(1.0)})[FLAT].data
        head = b'[["a","int16",[2]],["b","float32",[]]]'
        assert data[8 : 8 + len(head)] == head
        assert HEAD.unpack_from(data) == (len(head),)
        assert [(place.begin, place.end) for place in places(data)] == [(48, 52), (56, 60)]
        assert data[46:] == b"\0\0" + b"\1\0\2\0" + b"\0" * 4 + b"\0\0\x80\x3f"

    @pytest.mark.parametrize(
        ("entries", "body", "sentence"),
        [
            ([["w", "float32", [3]]], b"\0" * 8, "its head says"),
            ([["w", "float32", [1]]], b"\0" * 8, "its head says"),
            ([["w", "float32", [-2]]], b"\0" * 8, "a shape that cannot be"),
            ([["w", "float32", [True]]], b"\0" * 4, "a shape that cannot be"),
            ([["w", "float32", [10**4000] * 2000]], b"\0" * 4, "a shape that cannot be"),  # whose product takes hours
            ([["w", "float32", [2**39] * 100]], b"\0" * 4, "a shape that cannot be"),
            ([["w", "object", [1]]], b"\x80\x04N.", "an unknown type"),
            ([["w", [[]], [1]]], b"\0" * 4, "an unknown type"),
            ([["w", "float32", [1]]], b"\0\0\xc0\x7f", "not finite"),
            ([["w", "float32", [1]]], b"\0\0\x80\x7f", "not finite"),
            ([["w", "int8", [0]], ["w", "int8", [0]]], b"", "a tensor twice"),
            ([["w", "int8"]], b"", "not a name, a type and a shape"),
            ({"w": 1}, b"", "not a list"),
        ],
    )
    def test_what_lies_about_itself_is_refused(self, entries: Any, body: bytes, sentence: str) -> None:
        text = json.dumps(entries).encode()
        head = HEAD.pack(len(text)) + text
        with pytest.raises(Refused, match=sentence):
            unpack(_record(head + b"\0" * (-len(head) % 8) + body if body else head), "it")

    @pytest.mark.parametrize("data", [b"", b"\0" * 7, HEAD.pack(9) + b"[]", HEAD.pack(2) + b"[{", HEAD.pack(0)])
    def test_what_is_no_record_is_refused(self, data: bytes) -> None:
        with pytest.raises(Refused, match="it: it"):
            unpack(_record(data), "it")

    def test_names_shapes_and_types_must_be_those_expected(self) -> None:
        like = {"w": torch.zeros(2, 2)}
        for sent, sentence in (
            ({"v": torch.zeros(2, 2)}, "other tensors than expected"),
            ({"w": torch.zeros(4)}, r"has the shape \(4,\) and not \(2, 2\)"),
            ({"w": torch.zeros(2, 2, dtype=torch.float64)}, "of the type float64 and not float32"),
        ):
            with pytest.raises(Refused, match=sentence):
                unpack_like(pack(sent), like, "float32", "it")

    def test_facts_that_are_not_ours_are_refused(self) -> None:
        assert heard(say({"a": 1}))["a"] == 1
        for content, sentence in (
            (RecordDict(), "not one of fedgsp's"),
            (RecordDict({"fedgsp": ConfigRecord({"json": "{"})}), "not JSON"),
            (RecordDict({"fedgsp": ConfigRecord({"json": '{"protocol": 99}'})}), "not of protocol 3"),
            (RecordDict({"fedgsp": ConfigRecord({"json": '{"protocol": 3, "x": NaN}'})}), "a number is NaN"),
        ):
            with pytest.raises(Refused, match=sentence):
                heard(content)


def voted(guard: UpdateGuard, *lengths: float, more: bool = False, first: int = 0) -> dict[int, str | None] | None:
    """Verdicts on updates of these lengths, each of a client of its own."""
    return guard.verdicts([(first + k, {UPDATE: length}) for k, length in enumerate(lengths)], more)


class TestGuard:
    def test_the_first_answers_wait_for_others(self) -> None:
        guard = UpdateGuard(10.0)
        assert voted(guard, 1.0, more=True) is None
        assert voted(guard, 1.0, 2.0, more=True) is None
        assert voted(guard, 1.0, 2.0, 1.5, more=True) == {0: None, 1: None, 2: None}

    def test_a_round_waits_for_most_of_its_clients_or_one_of_every_chain(self) -> None:
        guard = UpdateGuard(10.0)
        guard.next_round(Plan(1, tuple(Chain((k,)) for k in range(9)), 9))
        assert voted(guard, *[1.0] * 4, more=True) is None
        assert voted(guard, *[1.0] * 5, more=True) is not None
        guard = UpdateGuard(10.0)
        guard.next_round(Plan(1, (Chain((0, 1, 2, 3)), Chain((4, 5, 6, 7))), 2))
        assert voted(guard, 1.0, more=True) is None
        assert voted(guard, 1.0, 1.0, more=True) is not None

    def test_whoever_is_last_is_judged_with_what_there_is(self) -> None:
        assert voted(UpdateGuard(10.0), 5.0) == {0: None}
        verdict = voted(UpdateGuard(10.0), 4.0, 5.0, 50.1)
        assert verdict is not None
        assert verdict[0] is verdict[1] is None
        assert "more than 10 times the median" in str(verdict[2])

    def test_the_bound_is_the_stated_one(self) -> None:
        guard = UpdateGuard(10.0)
        voted(guard, 1.0, 2.0, 3.0)
        assert voted(guard, 30.0, first=3) == {0: None}  # the upper median of 1 2 3 30 is 3
        refused = voted(guard, 300.1, 1e9, first=4)  # of 1 2 3 30 300.1 1e9 it is 30
        assert refused is not None
        assert all(refused.values())

    @pytest.mark.parametrize("short", [1e-9, 1e9])
    def test_a_minority_moves_the_bound_neither_up_nor_down_however_often_it_answers(self, short: float) -> None:
        guard = UpdateGuard(10.0)
        for _ in range(50):  # two hostile clients, alone for fifty rounds
            voted(guard, short, short)
        honest = voted(guard, 1.0, 2.0, 3.0, first=2)
        assert honest is not None
        again = voted(guard, 1.0, 2.0, 3.0, first=2)
        assert again == {0: None, 1: None, 2: None}
        hostile = voted(guard, short, short)
        assert hostile is not None
        assert all(hostile.values()) == (short > 1)

    def test_a_vote_fades_so_that_who_trained_often_does_not_shut_newcomers_out(self) -> None:
        guard = UpdateGuard(10.0)
        voted(guard, 1.0, 1.0)
        for _ in range(5):
            voted(guard, 0.001, 0.001)  # these two have converged: their votes are 0.9 ** 5
        assert voted(guard, 5.9, first=2) == {0: None}
        for _ in range(60):
            voted(guard, 0.001, 0.001)
        late = voted(guard, 5.9, first=2)
        assert late is not None
        assert late[0]

    def test_votes_of_an_earlier_part_of_the_run_count(self) -> None:
        guard = UpdateGuard(10.0, {UPDATE: {0: 1.0, 1: 1.0, 2: 1.0}})
        refused = voted(guard, 11.0, more=True, first=7)
        assert refused is not None
        assert refused[0]

    def test_each_length_is_measured_against_its_like(self) -> None:
        guard = UpdateGuard(10.0)
        answers = [(k, {UPDATE: 1.0, BUFFERS: 1e6, BESIDE: 1e-3}) for k in range(4)]
        assert guard.verdicts(answers, more=False) == dict.fromkeys(range(4))
        verdict = guard.verdicts([(9, {UPDATE: 1.0, BUFFERS: 1.0, BESIDE: 1.0})], more=False)
        assert verdict is not None
        assert "sent beside the model" in str(verdict[0])
        odd = guard.verdicts([(9, {BUFFERS: math.inf})], more=False)
        assert odd is not None
        assert "what nobody trains" in str(odd[0])

    def test_lengths_of_zero_say_nothing(self) -> None:
        assert voted(UpdateGuard(10.0), 0.0, 0.0) == {0: None, 1: None}
        assert voted(UpdateGuard(10.0), 0.0, 4.0, 5.0, 6.0) == dict.fromkeys(range(4))

    def test_an_update_may_not_dwarf_its_model(self) -> None:
        guard, handed = UpdateGuard(10.0), {"w": torch.tensor([3.0, 4.0])}
        guard.check_alone(50.0, handed)
        with pytest.raises(Refused, match="more than 10 times the model's own"):
            guard.check_alone(50.1, handed)
        guard.check_alone(10.0, {"w": torch.zeros(2)})

    def test_moved_is_the_euclidean_norm_of_what_is_trained(self) -> None:
        before = {"w": torch.zeros(2), "b": torch.zeros(1), "n": torch.tensor(1), "mean": torch.zeros(2)}
        after = {
            "w": torch.tensor([2.0, 3.0]),
            "b": torch.tensor([6.0]),
            "n": torch.tensor(100),
            "mean": torch.tensor([3.0, 4.0]),
        }
        trained = frozenset({"w", "b"})
        assert moved(before, after, trained) == pytest.approx(7.0)
        assert buffers_moved(before, after, trained) == pytest.approx(5.0)

    def test_values_that_could_not_be_added_are_refused(self) -> None:
        like = {"w": torch.tensor([2.0])}
        check_size({"w": torch.tensor([2.0**17])}, like, "its")
        with pytest.raises(Refused, match="far too large"):
            check_size({"w": torch.tensor([2.0**17 + 1])}, like, "its")
        check_size({"w": torch.tensor([2.0**17 + 1])}, like, "its", trained=frozenset())  # running means have no scale


class TestPace:
    def test_nothing_known_is_the_cap(self) -> None:
        assert AdaptiveTimeLimit(10.0, 100.0).limit(1, 50) == 100.0

    def test_three_times_overhead_and_the_clients_own_speed(self) -> None:
        pace = AdaptiveTimeLimit(1.0, 1000.0)
        pace.learn(1, samples=100, trained=20.0, waited=25.0)  # overhead 5, 0.2 s a sample
        pace.learn(2, samples=100, trained=1.0, waited=3.0)  # overhead 2, 0.01 s a sample
        assert pace.limit(1, 50) == pytest.approx(3 * (5 + 0.2 * 50))
        assert pace.limit(2, 50) == pytest.approx(3 * (5 + 0.01 * 50))
        assert pace.limit(3, 50) == pytest.approx(3 * (5 + 0.2 * 50))  # unknown: as slow as the slowest
        assert pace.limit(1, 10**9) == 1000.0

    def test_never_below_the_floor_and_a_lie_about_time_is_cut(self) -> None:
        pace = AdaptiveTimeLimit(60.0, 3600.0)
        pace.learn(1, 10, trained=math.inf, waited=2.0)
        assert pace.limit(1, 10) == 60.0


class TestSqueezed:
    """Answers as what differs from what was handed over: nothing is lost, and nothing larger comes out than must."""

    handed = pack({"w": torch.linspace(-1, 1, 500), "n": torch.tensor(3)})
    after = pack({"w": torch.linspace(-1, 1, 500) * (1 + 2**-12), "n": torch.tensor(4)})

    @pytest.mark.parametrize("wire", ["float32", "bfloat16"])
    def test_it_is_shorter_and_comes_back_to_the_bit(self, wire: Any) -> None:
        squeezed = squeeze(self.after, self.handed, wire)
        assert squeezed[FLAT].stype == SQUEEZED
        assert len(squeezed[FLAT].data) < 0.7 * len(self.after[FLAT].data)
        assert restore(squeezed, self.handed, wire, "it")[FLAT].data == self.after[FLAT].data

    def test_what_would_not_be_shorter_goes_as_it_is(self) -> None:
        noise = _record(torch.randint(0, 256, (2000,), dtype=torch.uint8).numpy().tobytes())
        zeros = _record(bytes(2000))
        assert squeeze(noise, zeros, "float32") is noise
        assert squeeze(noise, _record(bytes(1999)), "float32") is noise
        assert squeeze(pack({}), self.handed, "float32") == pack({})
        assert restore(self.after, self.handed, "float32", "it") is self.after

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [
            (b"", "does not come to"),
            (b"not zlib", "not squeezed by zlib"),
            (zlib.compress(bytes(10)), "does not come to"),
            (zlib.compress(bytes(len(handed[FLAT].data))) + b"more", "does not come to"),
            (zlib.compress(bytes(len(handed[FLAT].data)))[:-4], "does not come to"),
        ],
    )
    def test_lies_and_bombs_are_refused(self, data: bytes, sentence: str) -> None:
        lie = ArrayRecord({FLAT: Array("uint8", (len(data),), SQUEEZED, data)})
        with pytest.raises(Refused, match=f"it: .*{sentence}"):
            restore(lie, self.handed, "float32", "it")

    def test_a_bomb_takes_no_more_memory_than_a_model(self) -> None:
        bomb = zlib.compress(bytes(30_000_000))
        lie = ArrayRecord({FLAT: Array("uint8", (len(bomb),), SQUEEZED, bomb)})
        tracemalloc.start()
        try:
            with pytest.raises(Refused, match="does not come to"):
                restore(lie, self.handed, "float32", "it")
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()

    def test_nobody_reads_one_that_was_not_asked_for(self) -> None:
        with pytest.raises(Refused, match="unknown kind 'fedgsp"):
            unpack(squeeze(self.after, self.handed, "float32"), "it")
