"""What keys may use: buckets, budgets and permissions, alone and through a whole edge."""

from __future__ import annotations

from typing import Any

import pytest

from iop.edge.allowances import Allowances
from iop.edge.spent import DAY_US, month_start_us
from iop.errors import Forbidden, QuotaExhausted, RateLimited
from iop.events import ending, started
from iop.keylimits import KeyLimits, tightest
from iop.keys import KeyRing, make_key
from iop.proto.run_pb2 import Outcome, Usage
from iop.records import UsageRow
from tests.edge.conftest import PERSON, FakeEdge, FakeNode, prompt, result_of

NOON = 20_700 * DAY_US + DAY_US // 2


class Ledger:
    """Allowances of one owner, on clocks that a test moves."""

    def __init__(self, *limits: KeyLimits, now_us: int = NOON) -> None:
        self.limits, self.now_s, self.now_us = list(limits), 0.0, now_us
        self.all = Allowances(lambda owner: self.limits if owner == "anna" else [], lambda owner: owner != "bob",
                              lambda: self.now_s, lambda: self.now_us)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.now_us += int(seconds * 1e6)


def test_requests_of_a_minute_come_back_evenly_and_the_time_is_told() -> None:
    ledger = Ledger(KeyLimits(requests_per_minute=6))
    for _ in range(6):
        ledger.all.admit("anna")
    with pytest.raises(RateLimited, match="6 requests a minute") as refused:
        ledger.all.admit("anna")
    assert refused.value.retry_after_s == pytest.approx(10.0)
    ledger.advance(10.0)
    ledger.all.admit("anna")
    with pytest.raises(RateLimited):
        ledger.all.admit("anna")


def test_a_request_that_is_refused_takes_nothing() -> None:
    ledger = Ledger(KeyLimits(requests_per_minute=1, tokens_per_minute=10))
    ledger.all.charge("anna", 11, 0)
    with pytest.raises(RateLimited, match="tokens"):
        ledger.all.admit("anna")
    ledger.advance(7.0)
    ledger.all.admit("anna")


def test_tokens_beyond_a_minute_are_waited_for() -> None:
    ledger = Ledger(KeyLimits(tokens_per_minute=600))
    ledger.all.admit("anna")
    ledger.all.charge("anna", 1200, 0)
    with pytest.raises(RateLimited, match="600 tokens a minute") as refused:
        ledger.all.admit("anna")
    assert refused.value.retry_after_s == pytest.approx(60.1)
    ledger.advance(60.2)
    ledger.all.admit("anna")


def test_a_budget_is_gone_until_its_day_or_month_is_over() -> None:
    ledger = Ledger(KeyLimits(tokens_per_day=100, cost_per_month=2.0))
    ledger.all.charge("anna", 100, 1_500_000)
    with pytest.raises(QuotaExhausted, match="100 tokens a day") as refused:
        ledger.all.admit("anna")
    assert not refused.value.retryable
    ledger.advance(86_400)
    ledger.all.admit("anna")
    ledger.all.charge("anna", 0, 500_000)
    with pytest.raises(QuotaExhausted, match=r"\$2.00 a month"):
        ledger.all.admit("anna")
    ledger.advance(31 * 86_400)
    ledger.all.admit("anna")


def test_budgets_go_on_from_what_history_has() -> None:
    ledger = Ledger(KeyLimits(tokens_per_day=100, tokens_per_month=1000))
    ledger.all.load([UsageRow(key="anna", prompt_tokens=60)], [UsageRow(key="anna", prompt_tokens=60, completion_tokens=900)])
    ledger.all.admit("anna")
    ledger.all.charge("anna", 39, 0)
    ledger.all.admit("anna")
    ledger.all.charge("anna", 1, 0)
    with pytest.raises(QuotaExhausted, match="a day"):
        ledger.all.admit("anna")


def test_a_month_begins_at_midnight_utc_on_its_first_day() -> None:
    first = month_start_us(NOON)
    assert month_start_us(first) == first and first % DAY_US == 0
    assert month_start_us(first - 1) < first


def test_limits_that_change_keep_what_was_taken() -> None:
    ledger = Ledger(KeyLimits(requests_per_minute=10))
    for _ in range(10):
        ledger.all.admit("anna")
    ledger.limits = [KeyLimits(requests_per_minute=12)]
    ledger.all.admit("anna")
    ledger.all.admit("anna")
    with pytest.raises(RateLimited):
        ledger.all.admit("anna")


def test_of_two_keys_of_one_owner_the_tighter_limit_counts() -> None:
    one, other = KeyLimits(concurrency=5, models=["a"]), KeyLimits(concurrency=2, requests_per_minute=9, max_priority=3)
    assert tightest([one, other]) == KeyLimits(concurrency=2, requests_per_minute=9, max_priority=3)


def test_what_an_owner_without_limits_does_is_not_counted() -> None:
    ledger = Ledger(KeyLimits(requests_per_minute=1))
    for _ in range(100):
        ledger.all.admit("bob")
    assert ledger.all.headers("bob") == {}


def test_a_priority_is_lowered_to_the_most_that_is_allowed() -> None:
    ledger = Ledger(KeyLimits(max_priority=-5))
    assert [ledger.all.priority("anna", asked) for asked in (10, -5, -9)] == [-5, -5, -9]
    ledger.limits = [KeyLimits(max_priority=7)]
    assert [ledger.all.priority("anna", asked) for asked in (10, 7)] == [7, 7]


def test_without_a_limit_only_operators_are_more_urgent_than_others() -> None:
    ledger = Ledger()
    assert [ledger.all.priority("bob", asked) for asked in (500, 0, -3)] == [0, 0, -3]
    assert ledger.all.priority("root", 500) == 500
    ring = KeyRing([make_key("api", "bob", ["models"])[0], make_key("api", "op", ["admin"])[0], make_key("node", "n1")[0]])
    assert [ring.may_hurry(owner) for owner in ("bob", "op", "SHA256:x", "n1")] == [False, True, True, True]


def test_a_name_is_allowed_by_itself_or_where_all_that_it_means_are() -> None:
    ledger = Ledger(KeyLimits(models=["small", "ollama/*"]))
    ledger.all.permit("anna", "small", ["vllm/big"])
    ledger.all.permit("anna", "qwen", ["ollama/qwen", "ollama/qwen2"])
    for asked, targets in (("qwen", ["ollama/qwen", "vllm/qwen"]), ("other", ["vllm/other"])):
        with pytest.raises(Forbidden, match="may not use"):
            ledger.all.permit("anna", asked, targets)


def test_the_headers_tell_what_is_left() -> None:
    ledger = Ledger(KeyLimits(requests_per_minute=60, tokens_per_minute=6000))
    for _ in range(3):
        ledger.all.admit("anna")
    ledger.all.charge("anna", 1000, 0)
    assert ledger.all.headers("anna") == {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "57", "x-ratelimit-reset-requests": "3.000s",
        "x-ratelimit-limit-tokens": "6000", "x-ratelimit-remaining-tokens": "5000", "x-ratelimit-reset-tokens": "10.000s"}


def limited(edge: FakeEdge, **limits: Any) -> FakeNode:
    """A node, and a key of anna's with these limits."""
    node = edge.node()
    key, _ = make_key("api", PERSON.principal, limits=KeyLimits(**limits))
    edge.keys.append(key)
    edge.service.keyring = KeyRing(edge.keys)
    return node


def finish(node: FakeNode, request: Any, **usage: int) -> None:
    node.emit(request, 1, started("mock", "echo"), ending("completed", Outcome(code="ok", usage=Usage(**usage))))


def test_more_runs_than_a_key_may_have_at_once_wait_and_hold_up_nobody(edge: FakeEdge) -> None:
    node = limited(edge, concurrency=1)
    first, second = edge.submit(), edge.submit()
    assert (first.state, second.state) == ("placed", "queued")
    other = result_of(edge.service.submit(prompt(), type(PERSON)(face="http", principal="bob")))
    assert other.state == "placed"
    request, = [one for one in node.all("run_request") if one.run_id == first.run_id]
    finish(node, request)
    assert edge.run(second.run_id).state == "placed"


def test_a_run_that_waited_too_long_for_its_own_key_says_so(edge: FakeEdge) -> None:
    limited(edge, concurrency=1)
    edge.submit()
    waiting = edge.submit(prompt(limits={"queue_s": 5}))
    edge.clock.advance(6)
    ended = edge.run(waiting.run_id)
    assert ended.outcome_code == "queue_timeout" and "anna may have 1 runs at once" in str(ended.outcome)


def test_tokens_are_charged_when_a_run_ends_and_survive_a_restart(edge: FakeEdge) -> None:
    node = limited(edge, tokens_per_day=100)
    run = edge.submit()
    finish(node, node.accept(), prompt_tokens=70, completion_tokens=40, cached_tokens=8)
    record = edge.run(run.run_id)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (70, 40, 8)
    with pytest.raises(QuotaExhausted):
        edge.submit()
    again = edge.restarted(KeyRing(edge.keys))
    with pytest.raises(QuotaExhausted):
        again.submit()


def test_a_key_for_some_models_may_not_use_others(edge: FakeEdge) -> None:
    limited(edge, models=["other"])
    with pytest.raises(Forbidden):
        edge.submit()
    assert not edge.history.kept.runs
    assert not edge.service.permits("anna", "mock/echo") and edge.service.permits("bob", "mock/echo")


def test_an_edge_tells_what_is_left_of_a_key(edge: FakeEdge) -> None:
    limited(edge, requests_per_minute=5, max_priority=0)
    record = edge.submit(prompt(priority=9))
    assert record.priority == 0 and edge.service.node("n1").running == 1
    assert edge.service.allowance("anna")["x-ratelimit-remaining-requests"] == "4"
    assert edge.service.allowance("bob") == {}
