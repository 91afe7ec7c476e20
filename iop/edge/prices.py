"""What a run cost: what its backend or program told, else its tokens at the price of its model. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from iop.config import Price
from iop.proto.run_pb2 import Usage
from iop.records import RunRecord


def cost_micros(prices: Mapping[str, Price], record: RunRecord, usage: Usage) -> int:
    """In millionths of a dollar; 0 where no price is known. Prices go by alias, ADAPTER/TARGET and target, the first that
    is there."""
    if usage.cost_usd:
        return round(usage.cost_usd * 1e6)
    if not prices:
        return 0
    names = (record.alias, f"{record.adapter}/{record.target}", record.target)
    price = next((prices[name] for name in names if name in prices), None)
    if price is None:
        return 0
    return round(usage.prompt_tokens * price.input + usage.completion_tokens * price.output)     # dollars a million
