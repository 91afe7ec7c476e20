from __future__ import annotations

from iop.config import Price
from iop.edge.prices import cost_micros
from iop.proto.run_pb2 import Usage
from iop.records import RunRecord


def test_what_a_program_tells_of_its_cost_wins_over_the_price_of_its_model() -> None:
    prices = {"qwen": Price(input=0.5, output=2.0), "vllm/q": Price(input=1.0)}
    run = RunRecord(run_id="r", state="running", adapter="vllm", target="q", alias="qwen")
    assert cost_micros(prices, run, Usage(prompt_tokens=1000, completion_tokens=100)) == 700
    assert cost_micros(prices, run, Usage(prompt_tokens=1000, cost_usd=0.25)) == 250_000
    run.alias = ""
    assert cost_micros(prices, run, Usage(prompt_tokens=1000)) == 1000
    run.target = "z"
    assert cost_micros(prices, run, Usage(prompt_tokens=1000)) == cost_micros({}, run, Usage(prompt_tokens=9)) == 0


# --- through an edge
