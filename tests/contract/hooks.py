"""What schemathesis is told of this edge: its key, the model and the runs that there are; and a count of what was answered.

Loaded by schemathesis itself (SCHEMATHESIS_HOOKS). IOP_CONTRACT_RUNS and IOP_CONTRACT_RESPONSES name what there is,
IOP_CONTRACT_TALLY the file for the counts.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis

IDS = {"run_id": os.environ["IOP_CONTRACT_RUNS"].split(","), "node_id": ["node-2", "nobody"], "model": ["echo", "mock/echo"],
       "response_id": os.environ["IOP_CONTRACT_RESPONSES"].split(",")}
TALLY = Path(os.environ["IOP_CONTRACT_TALLY"])
OFTEN = 0.7              # what exists and makes sense: most requests have to come past the first look, some not
MODELS = ("echo", "chats")       # a mock; and a backend that has nothing but chats, so that all else is translated
SAYS = {"prompt": "hi", "input": "hi", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
chance = random.Random(int(os.environ["IOP_CONTRACT_SEED"]))
told: dict[str, Counter[int]] = {}


@schemathesis.hook
def before_call(context, case, kwargs) -> None:
    """The key stands in Authorization; a made-up x-api-key beside it would have all of them refused.

    What is asked of nodes is asked of the second, since it may be drained; with the first alone a 503 is a fault.
    """
    if case.headers and chance.random() < OFTEN:
        case.headers.pop("x-api-key", None)
    if isinstance(case.body, dict) and chance.random() < OFTEN:
        case.body |= sensible(case.body, case.path)
    if isinstance(case.body, dict) and "timeout_s" in case.body:
        case.body["timeout_s"] = 30.0            # else a 504 would be the right answer
    for name, ids in IDS.items():
        if isinstance(case.path_parameters, dict) and name in case.path_parameters:
            if name == "node_id" or chance.random() < OFTEN:
                case.path_parameters[name] = chance.choice(ids)


def sensible(body: dict[str, Any], path: str) -> dict[str, Any]:
    if path.endswith("/runs"):
        return {"adapter": "mock", "target": "echo", "input": {"prompt": "hi"}}
    if path.startswith("/api/v1"):
        return {"drain": chance.random() < 0.5, "labels": {"a": "b"}} if path.endswith("{node_id}") else {}
    return {name: value for name, value in SAYS.items() if name in body} | {"model": chance.choice(MODELS)}


@schemathesis.hook
def after_call(context, case, response) -> None:
    told.setdefault(f"{case.method} {case.path}", Counter())[response.status_code] += 1
    TALLY.write_text(json.dumps(told))
