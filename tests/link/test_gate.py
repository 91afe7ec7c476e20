"""How many may be at the gate, and who is kept out of it."""

from __future__ import annotations

import pytest

from iop.link.gate import Gate, source_of


@pytest.mark.parametrize(("host", "source"), [
    ("192.0.2.7", "192.0.2.7"), ("127.3.0.1", None), ("::1", None), ("::ffff:127.0.0.1", None),
    ("::ffff:192.0.2.7", "192.0.2.7"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("fe80::1%eth0", "fe80::/64"),
    ("a socket", "a socket"),
])
def test_a_source_is_an_ipv4_address_or_a_64_of_ipv6(host, source):
    assert source_of(host) == source


def test_the_gate_counts_down():
    gate = Gate(lambda: 0.0, 2, 1)
    assert gate.enter("a") == "" and gate.enter("a") == "too_many_from_source"
    gate.leave("a")
    assert gate.enter("a") == "" and gate.enter("b") == "" and gate.enter("c") == "too_many_connections"
    assert gate.inside == 2


def test_penalties_add_up_before_they_act_and_have_an_end():
    now = [0.0]
    gate = Gate(lambda: now[0])
    for _ in range(2):
        gate.punish("a", "auth_failed")
        assert gate.enter("a") == ""
        gate.leave("a")
    gate.punish("a", "auth_failed")
    assert gate.enter("a") == "penalty"
    for _ in range(1000):
        gate.punish("a", "frame_too_large")
    now[0] = 599
    assert gate.enter("a") == "penalty"
    now[0] = 601
    assert gate.enter("a") == ""


def test_a_million_sources_do_not_fill_the_memory_of_the_gate():
    now = [0.0]
    gate = Gate(lambda: now[0])
    for number in range(50_000):
        gate.punish(str(number), "frame_too_large")
    assert len(gate._penalties) == 10_000
    now[0] = 31
    gate.punish("late", "frame_too_large")
    assert len(gate._penalties) == 1
