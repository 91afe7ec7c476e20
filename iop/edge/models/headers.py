"""The headers that tell a model API's client of its run, and when to come again. Pure."""

from __future__ import annotations

from iop.edge.models.ending import Ending
from iop.records import RunRecord
from iop.web.errors import RETRYING, SDK_RETRIES, request_header, retry_headers

WARNING_CHARS = 500


def answer_headers(record: RunRecord, ending: Ending, overhead_s: float) -> dict[str, str]:
    """Beside x-request-id, which every answer has. `overhead_s`: what the edge itself took until now, without the queue."""
    waited_us = max(0, (record.placed_us or record.ended_us or record.created_us) - record.created_us)
    headers = {"x-iop-run-id": record.run_id, "x-iop-queue-ms": str(waited_us // 1000),
               "x-iop-overhead-ms": f"{max(0.0, overhead_s) * 1000:.1f}", **request_header(ending.dialect, ending.request_id)}
    if record.node_id:
        headers["x-iop-node"] = record.node_id
    if record.placement:
        headers["x-iop-placement"] = record.placement
    if ending.warnings:
        headers["x-iop-warning"] = "; ".join(ending.warnings)[:WARNING_CHARS]
    return headers


def failure_headers(ending: Ending) -> dict[str, str]:
    """Whether and when the client is to try again. A run that has begun is not started again by its client's SDK."""
    told = retry_headers(ending.outcome.code, ending.outcome.retry_after_s)
    if ending.dialect in RETRYING and (ending.started or (ending.status in SDK_RETRIES and not ending.outcome.retryable)):
        told["x-should-retry"] = "false"
    return told
