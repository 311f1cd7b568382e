"""The generator's calls: what they may contain, and that a seed gives the same ones again."""

from collections import Counter

from tests.jepsen.history.history import Function, MicroPoll, MicroSend, Op
from tests.jepsen.workload.generator import KEYS_ACTIVE, MICROS_MAX, WRITES_MAX, Call, Generator, topic_of


def drawn(generator: Generator, count: int = 3_000) -> list[Call]:
    """Calls of three processes, ten a second."""
    return [generator.call(number % 3, number / 10) for number in range(count)]


def ok(f: Function, *micros: MicroSend | MicroPoll) -> Op:
    return Op(index=0, time_ns=0, process=0, type="ok", f=f, micros=micros)


def test_a_seed_gives_the_same_calls_and_another_one_others() -> None:
    first, again, other = (drawn(Generator(seed=seed, clients=3)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_process_is_told_what_to_read_before_anything_else() -> None:
    generator = Generator(seed=1, clients=2)
    assert {generator.call(process, 0).f for process in range(40)} == {"assign", "subscribe"}


def test_a_transaction_has_one_to_four_micro_operations_and_anything_else_one() -> None:
    sizes = Counter((call.f, len(call.micros)) for call in drawn(Generator(seed=1, clients=3)) if call.micros)
    assert {size for f, size in sizes if f == "txn"} == set(range(1, MICROS_MAX + 1))
    assert {size for f, size in sizes if f != "txn"} == {1}


def test_one_call_in_64_names_what_to_read() -> None:
    placings = [call for call in drawn(Generator(seed=2, clients=3), 6_400) if call.keys]
    assert 60 < len(placings) < 160


def test_a_tenth_of_the_transactions_is_to_be_aborted_and_nothing_else() -> None:
    calls = drawn(Generator(seed=3, clients=3))
    transactions = [call for call in calls if call.f == "txn"]
    aborted = [call for call in calls if call.is_aborted]
    assert all(call.f == "txn" for call in aborted)
    assert 0.07 < len(aborted) / len(transactions) < 0.13


def test_a_value_is_sent_once_to_its_key_and_a_key_is_replaced_after_its_last() -> None:
    generator = Generator(seed=4, clients=3)
    sends = [
        (micro.key, micro.value)
        for call in drawn(generator, 12_000)
        for micro in call.micros
        if isinstance(micro, MicroSend)
    ]
    assert len(set(sends)) == len(sends)
    counts = Counter(key for key, _ in sends)
    assert max(counts.values()) == WRITES_MAX
    assert len(generator.active) == KEYS_ACTIVE
    assert all(counts[key] < WRITES_MAX for key in generator.active)
    assert len(generator.keys) > KEYS_ACTIVE
    assert f"{topic_of(generator.topics_count - 1)}-0" in generator.keys


def test_every_client_crashes_about_every_thirty_seconds() -> None:
    crashes = [call for call in drawn(Generator(seed=5, clients=3), 3_000) if call.crash_after_s is not None]
    assert 20 <= len(crashes) <= 40  # 300 s, of three clients


def test_a_third_of_the_placings_names_keys_that_hold_what_nobody_has_read() -> None:
    generator = Generator(seed=6, clients=1, placings=("assign",))
    generator.completed(ok("send", MicroSend("old-0", 1, 12)))
    placings = [generator.call(process, 0) for process in range(300)]
    naming = [call for call in placings if "old-0" in call.keys]
    assert 70 < len(naming) < 130
    generator.completed(ok("poll", MicroPoll({"old-0": ((12, 1),)})))
    assert not [call for call in (generator.call(process, 0) for process in range(300, 400)) if "old-0" in call.keys]


def test_only_transactions_and_only_assigned_keys_can_be_asked_for() -> None:
    generator = Generator(seed=7, clients=1, functions=("txn",), placings=("assign",))
    assert {call.f for call in drawn(generator)} == {"txn", "assign"}


def test_the_final_reads_must_reach_what_ok_calls_told_of_and_nothing_else() -> None:
    generator = Generator(seed=8, clients=1)
    generator.completed(ok("txn", MicroSend("a-0", 1, 5), MicroSend("a-1", 1, None), MicroPoll({"b-0": ((7, 1),)})))
    generator.completed(Op(index=1, time_ns=1, process=0, type="info", f="send", micros=(MicroSend("a-0", 2, 9),)))
    assert generator.ends == {"a-0": 5, "b-0": 7}
    assert generator.unplaced.wanted == {"a-1": {1}}
